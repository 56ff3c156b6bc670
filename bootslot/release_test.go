package bootslot

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"holdfast/device"
)

func TestDigest(t *testing.T) {
	// The digests are the ledger's keys: marks of boards in the field depend on these very values.
	tests := []struct {
		name string
		r    Release
		want Digest
	}{
		{"two fields, order of writing does not matter", Release{Fields: device.Fields{"pump": "on", "fan": "off"}}, "97452c71895aa00690fa0342cfa6ad93c12e352c5f19e85238d9d77f60203fb9"},
		{"an image by its sha256 only", Release{Fields: device.Fields{"fan": "off", "pump": "on"}, Image: &Image{Version: "7", URL: "http://x", SHA256: "ab"}}, "bf42caac8575e49fbfd55eca032fc57f195cb85071bc78c5966db6d15708e373"},
		{"the same image from elsewhere", Release{Fields: device.Fields{"fan": "off", "pump": "on"}, Image: &Image{Version: "8", URL: "file:///y", SHA256: "ab"}}, "bf42caac8575e49fbfd55eca032fc57f195cb85071bc78c5966db6d15708e373"},
		{"no field", Release{}, "7cf5b6445ba4e87dceb2b50d3bdff7c016e13ded626fd4634ac66ddccdb056f1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, "Digest()", tt.r.Digest(), tt.want)
		})
	}
}

// The canonical form is JSON as everybody else would write it, whatever is in the strings.
func TestCanonicalForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Release{Fields: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "fields")}
		if rapid.Bool().Draw(t, "with an image") {
			r.Image = &Image{SHA256: rapid.String().Draw(t, "sha256")}
		}
		want, err := json.Marshal(r.values())
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.canonical()); got != "holdfast-release-1\n"+string(want) {
			t.Errorf("canonical() = %q, want the prefix and %q", got, want)
		}
	})
}

func TestChangedAndContains(t *testing.T) {
	tests := []struct {
		name       string
		r, base    Release
		changed    []string
		set        device.Fields
		contains   bool
		wantsEqual bool
	}{
		{"the same", content("lamp"), content("lamp"), nil, device.Fields{"lamp": "on"}, true, true},
		{"a value", content("lamp"), content("pump"), []string{"lamp", "pump"}, device.Fields{"lamp": "on", "pump": "off"}, true, false},
		{"a value of the set differs", content("lamp"), content(""), []string{"lamp"}, device.Fields{"lamp": "on", "pump": "on"}, false, false},
		{"a field that only the base has", Release{Fields: device.Fields{"lamp": "on"}}, Release{Fields: device.Fields{"lamp": "on", "fan": "on"}},
			[]string{"fan"}, device.Fields{"fan": ""}, true, false},
		{"a set without a field that is there", content("lamp"), content("lamp"), nil, device.Fields{"fan": ""}, false, true},
		{"another image", content("image=aa"), content("image=bb"), []string{"image"}, device.Fields{"image": "aa"}, true, false},
		{"an image where there was none", content("image=aa"), content(""), []string{"image"}, device.Fields{"image": "aa"}, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkList(t, "Changed(base)", tt.r.Changed(tt.base), tt.changed)
			check(t, "Contains(set)", tt.r.Contains(tt.set), tt.contains)
			check(t, "Equal(base)", tt.r.Equal(tt.base), tt.wantsEqual)
		})
	}
}
