// Package boltfile says whether a file may be given to bbolt.
//
// bbolt believes what it reads, and reads through a mapping. A page that points at itself, which is one flipped bit away, makes it turn in a circle or use
// up its stack; a length that is too long makes it read elsewhere, or grow the file without end. Some of that is a panic, which can be
// recovered from; some is the end of the process, at each start again. So each page that is in use is looked at before bbolt is: with ordinary reads,
// which cost some microseconds a page.
//
// What is checked is the structure alone: that every page is what it says, is used once, and points at what is there. Contents need a checksum of
// their own, and who reads them must be ready for a block that the disk cannot read.
package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrDamaged reports a file that bbolt must not see.
	ErrDamaged = errors.New("its structure is damaged")
	// ErrLocked reports that another process has the file open, or writes to it.
	ErrLocked = errors.New("another process has it open")
)

// Opener is for bbolt's Options.OpenFile. It waits for bbolt's lock, at most so long, then looks at the file, and shows it by way of f, which is to be let
// go of (LetGo) if bbolt panics. fresh says that there is nothing in it yet.
func Opener(f **os.File, wait time.Duration, fresh bool) func(name string, flag int, mode os.FileMode) (*os.File, error) {
	return func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		if !fresh {
			flag &^= os.O_CREATE
		}
		*f, err = os.OpenFile(name, flag, mode)
		if err != nil {
			return nil, err
		}
		if err = lock(*f, flag&os.O_RDWR != 0, wait); err == nil && !fresh {
			err = CheckFile(*f)
		}
		if err != nil {
			_ = (*f).Close()
			return nil, err
		}
		return *f, nil
	}
}

func lock(f *os.File, write bool, wait time.Duration) error {
	how := unix.LOCK_SH
	if write {
		how = unix.LOCK_EX
	}
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(end) {
			return ErrLocked
		}
	}
}

// LetGo closes a file behind bbolt's back. Its mapping is lost to this process; as that keeps the file open, the lock is undone by name.
func LetGo(f *os.File) error {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	return f.Close()
}

// CheckFile is Check of all of a file. A block that the disk cannot read any more is damage, too.
func CheckFile(f *os.File) error {
	info, err := f.Stat()
	if err == nil {
		err = Check(f, info.Size())
	}
	if errors.Is(err, unix.EIO) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// The file's format (go.etcd.io/bbolt/internal/common), in the byte order of the machine that wrote it.
const (
	magic   = 0xED0CDAED
	version = 2

	pageHeader   = 16 // id uint64, flags uint16, count uint16, overflow uint32
	metaSize     = 64 // magic, version, page size, flags uint32; root, its sequence, free list, high water mark, transaction, checksum uint64
	element      = 16 // branch: position, key size uint32, page uint64; leaf: flags, position, key size, value size uint32
	bucketHeader = 16 // root page, 0 if the page follows; sequence uint64

	branch   = 0x01
	leaf     = 0x02
	freelist = 0x10

	bucketEntry = 0x01
)

var order = binary.NativeEndian

type meta struct{ pageSize, root, free, pages, tx uint64 }

func readMeta(f io.ReaderAt, at int64) (m meta, ok bool, err error) {
	b := make([]byte, pageHeader+metaSize)
	if _, err := f.ReadAt(b, at); err != nil && err != io.EOF {
		return m, false, err
	}
	b = b[pageHeader:]
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	if order.Uint32(b) != magic || order.Uint32(b[4:]) != version || h.Sum64() != order.Uint64(b[metaSize-8:]) {
		return m, false, nil
	}
	return meta{uint64(order.Uint32(b[8:])), order.Uint64(b[16:]), order.Uint64(b[32:]), order.Uint64(b[40:]), order.Uint64(b[48:])}, true, nil
}

// MakeSure makes a file on the disk what it is in the kernel's memory, after a commit that failed. Which of two states bbolt goes on with is said by the two
// meta pages, and the kernel does not try again to write a page that it could not: a sync would succeed without it, and bbolt would overwrite what
// the state on the disk still needs. So both are written anew. Then the file is to be opened anew, as what bbolt remembers of free pages is of one
// of the two.
//
// And if power fails now? What is written is what is there or what the failed commit has written: either state is whole.
func MakeSure(f *os.File) error {
	m, ok, err := readMeta(f, 0)
	if !ok {
		m.pageSize = uint64(os.Getpagesize())
	}
	metas := make([]byte, m.pageSize+pageHeader+metaSize)
	if err == nil {
		_, err = f.ReadAt(metas, 0)
	}
	if err == nil {
		_, err = f.WriteAt(metas, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}

// Check reads how all is laid out that is in use of a file of so many bytes. ErrDamaged if bbolt must not see it; any other error is the disk's.
func Check(f io.ReaderAt, size int64) error {
	m, ok, err := readMeta(f, 0)
	// The second page says it as well; how long the first one is, is not known then.
	for at := int64(1024); err == nil && at <= 16<<20 && at < size; at *= 2 {
		if ok && at != int64(m.pageSize) {
			continue
		}
		var other meta
		var valid bool
		if other, valid, err = readMeta(f, at); valid && (!ok || other.tx > m.tx) {
			m, ok = other, true
		}
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return damaged("no meta page is valid")
	case m.pageSize < 1024 || m.pageSize > 16<<20 || m.pages < 4 || m.pages > uint64(size)/m.pageSize:
		return damaged("%d bytes are left of %d pages of %d", size, m.pages, m.pageSize)
	}
	c := &check{f: f, meta: m, used: make([]bool, m.pages)}
	c.used[0], c.used[1] = true, true
	if err := c.freelist(); err != nil {
		return err
	}
	return c.tree(m.root, nil, nil, true)
}

type check struct {
	f io.ReaderAt
	meta
	used  []bool
	spare [][]byte // buffers of pages
}

// take notes that a page is used, or free, which it may be once.
func (c *check) take(id uint64) error {
	if id >= c.pages || c.used[id] {
		return damaged("page %d is in use elsewhere, or beyond the %d that there are", id, c.pages)
	}
	c.used[id] = true
	return nil
}

// page reads a page, which is to be let go of when nobody looks at it any more. Of those that continue it, only what describes entries is read: long
// values are most of a file, and nobody here looks at them.
func (c *check) page(id uint64) (p page, err error) {
	if id >= c.pages {
		return p, damaged("there is no page %d", id)
	}
	b, err := c.read(id, c.pageSize)
	if err != nil {
		return p, err
	}
	p = page{id, order.Uint16(b[8:]), int(order.Uint16(b[10:])), b, 0}
	if got := order.Uint64(b); got != id {
		return p, damaged("page %d says that it is page %d", id, got)
	}
	more := uint64(order.Uint32(b[12:]))
	for i := range more + 1 {
		if err := c.take(id + i); err != nil {
			return p, err
		}
	}
	p.size = (more + 1) * c.pageSize
	if need := min(uint64(pageHeader+p.count*element), p.size); need > c.pageSize {
		c.letGo(p)
		p.data, err = c.read(id, need)
	}
	return p, err
}

// read reads from the beginning of a page on, into a buffer that has been let go of if there is one.
func (c *check) read(id, n uint64) (b []byte, err error) {
	if last := len(c.spare) - 1; last >= 0 && uint64(cap(c.spare[last])) >= n {
		b, c.spare = c.spare[last][:n], c.spare[:last]
	} else {
		b = make([]byte, n)
	}
	_, err = c.f.ReadAt(b, int64(id*c.pageSize))
	return b, err
}

func (c *check) letGo(p page) { c.spare = append(c.spare, p.data) }

// page is one that may be continued in others.
type page struct {
	id    uint64
	flags uint16
	count int
	data  []byte // as much of it as has been read
	size  uint64
}

func (p page) damaged(format string, args ...any) error {
	return damaged("page %d: %s", p.id, fmt.Sprintf(format, args...))
}

func (c *check) freelist() error {
	p, err := c.page(c.free)
	if err != nil {
		return err
	}
	defer c.letGo(p)
	// Of 0xFFFF entries or more, which need a file of 256 MiB, there would be another form.
	if p.flags != freelist || p.count == 0xFFFF || p.count > (len(p.data)-pageHeader)/8 {
		return p.damaged("it is of kind %#x, with %d entries: no list of free pages", p.flags, p.count)
	}
	for i := range p.count {
		if err := c.take(order.Uint64(p.data[pageHeader+8*i:])); err != nil {
			return err
		}
	}
	return nil
}

// tree reads a page of a bucket and all below it. Its keys lie from least on and before end; nil is no bound. The top bucket has buckets only.
func (c *check) tree(id uint64, least, end []byte, top bool) error {
	p, err := c.page(id)
	if err != nil {
		return err
	}
	defer c.letGo(p)
	if p.flags == leaf {
		return c.leaf(p, least, end, top, true)
	}
	if p.flags != branch || p.count == 0 {
		return p.damaged("it is of kind %#x, with %d entries", p.flags, p.count)
	}
	keys := make([][]byte, p.count+1)
	keys[p.count] = end
	for i := range p.count {
		at := pageHeader + i*element
		if keys[i], err = c.bytes(p, at, at, 0, 4); err != nil {
			return err
		}
	}
	if err := p.ordered(keys[:p.count], least, end); err != nil {
		return err
	}
	for i := range p.count {
		if err := c.tree(order.Uint64(p.data[pageHeader+i*element+8:]), keys[i], keys[i+1], top); err != nil {
			return err
		}
	}
	return nil
}

// leaf reads the entries of a leaf: values, buckets, or either.
func (c *check) leaf(p page, least, end []byte, noValues, buckets bool) (err error) {
	keys := make([][]byte, p.count)
	for i := range p.count {
		at := pageHeader + i*element
		if keys[i], err = c.bytes(p, at, at, 4, 8); err != nil {
			return err
		}
		value := at + int(order.Uint32(p.data[at+8:])) // behind the key
		from, to, err := p.span(at, value, 4, 12)
		if err != nil {
			return err
		}
		switch flags := order.Uint32(p.data[at:]); {
		case flags == 0 && !noValues:
		case flags != bucketEntry || !buckets || to-from < bucketHeader:
			return p.damaged("entry %d is of kind %#x, with %d bytes", i, flags, to-from)
		default:
			value, err := c.bytes(p, at, value, 4, 12)
			if err != nil {
				return err
			}
			if root := order.Uint64(value); root != 0 {
				err = c.tree(root, nil, nil, false)
			} else if value = value[bucketHeader:]; len(value) < pageHeader {
				err = p.damaged("entry %d is a bucket of %d bytes", i, len(value))
			} else if in := (page{p.id, order.Uint16(value[8:]), int(order.Uint16(value[10:])), value, uint64(len(value))}); in.flags != leaf {
				err = p.damaged("entry %d is a bucket of kind %#x", i, in.flags)
			} else {
				err = c.leaf(in, nil, nil, false, false)
			}
			if err != nil {
				return err
			}
		}
	}
	return p.ordered(keys, least, end)
}

// span is where in the page that lies what the element at byte at describes: it begins at base and the position that stands in the element, and is as
// long as the size that stands there says.
func (p page) span(at, base, position, size int) (from, to uint64, err error) {
	if at+element > len(p.data) {
		return 0, 0, p.damaged("%d entries do not fit", p.count)
	}
	from = uint64(base) + uint64(order.Uint32(p.data[at+position:]))
	to = from + uint64(order.Uint32(p.data[at+size:]))
	if to > p.size || from < uint64(pageHeader+p.count*element) {
		return 0, 0, p.damaged("an entry lies at [%d,%d) of %d bytes", from, to, p.size)
	}
	return from, to, nil
}

// bytes returns what lies there, valid until the page is let go of.
func (c *check) bytes(p page, at, base, position, size int) ([]byte, error) {
	from, to, err := p.span(at, base, position, size)
	if err != nil {
		return nil, err
	}
	if to <= uint64(len(p.data)) {
		return p.data[from:to], nil
	}
	b := make([]byte, to-from)
	_, err = c.f.ReadAt(b, int64(p.id*c.pageSize+from))
	return b, err
}

// ordered says whether keys ascend, from least on and before end.
func (p page) ordered(keys [][]byte, least, end []byte) error {
	for i, k := range keys {
		if len(k) == 0 || i == 0 && least != nil && bytes.Compare(k, least) < 0 || i > 0 && bytes.Compare(keys[i-1], k) >= 0 ||
			end != nil && bytes.Compare(k, end) >= 0 {
			return p.damaged("key %d is out of order", i)
		}
	}
	return nil
}
