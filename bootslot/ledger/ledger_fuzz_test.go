package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"holdfast/bootslot"
)

// records are ledgers in files: whole ones of several generations and ids, and some that are none.
func records(t testing.TB) (all []string) {
	l := bootslot.NewLedger("one")
	keep := func(l bootslot.Ledger) {
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	keep(l)
	b := bootslot.Board{Fallback: release("off"), Attempts: 3}
	_, s := bootslot.Admit(l, b, bootslot.Wish{Release: release("off")}, bootslot.Facts{})
	keep(s.Ledger)
	_, s = bootslot.Admit(s.Ledger, b, bootslot.Wish{Release: release("on")}, bootslot.Facts{Rest: bootslot.RestFacts{AtRest: true}, Waited: time.Hour})
	keep(s.Ledger)
	keep(bootslot.Settle(s.Ledger, b, bootslot.Failed, bootslot.Evidence{Check: "hot"}).Ledger)
	trial, failed := all[2], all[3]
	return append(all, strings.Replace(failed, `"one"`, `"two"`, 1), strings.Replace(failed, `"schema":1`, `"schema":3,"news":{"a":1}`, 1), strings.Replace(trial, `"minWriter":1`, `"minWriter":2`, 1),
		strings.Replace(trial, `"set":{"lamp":"on"}`, `"set":{}`, 1), strings.Replace(failed, `"set":{"lamp":"on"}`, `"set":null`, 1), strings.Replace(trial, `"slot":"B"`, `"slot":"A"`, 1), "", "null", `{"id":"one","slots":{}}`)
}

// FuzzFiles: whatever stands in ledger.db and in its sidecar, under a right checksum or a wrong one, the guard starts with the record that the design says (the higher generation of
// one ledger, else ledger.db's, else the one that can be read, else a new one), which is valid; then both files hold it, and nothing else is said of them.
func FuzzFiles(f *testing.F) {
	all := records(f)
	for i, r := range all {
		f.Add([]byte(r), []byte(all[(i+1)%len(all)]), uint8(3))
		f.Add([]byte(r), []byte(all[(i+len(all)-1)%len(all)]), uint8(3))
		f.Add([]byte(r), []byte(all[3]), uint8(i)<<2|uint8(i))
	}
	f.Add(seal([]byte(all[2])), seal([]byte(all[3])), uint8(0))
	f.Add(seal([]byte(all[3])), bytes.Replace(seal([]byte(all[2])), []byte(`"on"`), []byte(`"no"`), 1), uint8(0))
	f.Fuzz(func(t *testing.T, inDB, inSidecar []byte, how uint8) {
		dir := t.TempDir()
		dbPath, sidecar := filepath.Join(dir, "ledger.db"), filepath.Join(dir, "ledger.json")
		if how&1 != 0 {
			inDB = seal(inDB)
		}
		if how&2 != 0 {
			inSidecar = seal(inSidecar)
		}
		noDB, noSidecar := how&4 != 0, how&8 != 0
		if !noDB {
			db, err := bolt.Open(dbPath, 0o600, &bolt.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucket(bucketRecord)
				if err != nil {
					return err
				}
				return b.Put(keyLedger, inDB)
			})
			if err != nil || db.Close() != nil {
				t.Fatal(err)
			}
		}
		if !noSidecar {
			if err := os.WriteFile(sidecar, inSidecar, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read := func(b []byte, absent bool) (l bootslot.Ledger, raw []byte, ok bool) {
			if absent {
				return l, nil, false
			}
			l, raw, err := unseal(b)
			if err != nil {
				return l, nil, false
			}
			if sum := sha256.Sum256(raw); !bytes.Contains(b, []byte(hex.EncodeToString(sum[:]))) || !bytes.Contains(b, raw) || l.ID == "" {
				t.Errorf("%q is read as %q", b, raw)
			}
			if err := l.Valid(); err != nil && l.Writable() {
				t.Errorf("%q is read, and is not valid: %v", b, err)
			}
			return l, raw, true
		}
		main, mainRaw, mainOK := read(inDB, noDB)
		side, sideRaw, sideOK := read(inSidecar, noSidecar)
		want := mainRaw
		if sideOK && (!mainOK || main.ID == side.ID && side.Generation > main.Generation) {
			want = sideRaw
		}

		s, l, _, err := Open(dir)
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		switch {
		case want != nil && !bytes.Equal(s.Raw(), want):
			t.Errorf("of %q and %q comes %q, want %q", inDB, inSidecar, s.Raw(), want)
		case want == nil && (l.Generation != 1 || l.HasGood() || len(l.Marks) > 0 || l.Trial != nil):
			t.Errorf("of nothing comes %+v", l)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for path, lost := range map[string]bool{dbPath: !noDB && !mainOK, sidecar: !noSidecar && !sideOK} {
			if _, err := os.Stat(path + ".bad"); (err == nil) != lost {
				t.Errorf("%s was set aside: %v, want %v", path, err == nil, lost)
			}
		}
		kept, err := ReadSidecar(sidecar)
		if err != nil || kept.Generation != l.Generation || kept.ID != l.ID {
			t.Errorf("the sidecar holds %+v, %v; want %+v", kept, err, l)
		}
		again, l2, notices, err := Open(dir)
		if err != nil || len(notices) > 0 || l2.Generation != l.Generation || !bytes.Equal(again.Raw(), s.Raw()) {
			t.Errorf("opened again: %+v, %v, %v; want %+v", l2, notices, err, l)
		}
		_ = again.Close()
	})
}
