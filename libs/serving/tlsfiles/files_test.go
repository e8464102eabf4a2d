package tlsfiles_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/serving/tlsfiles"
)

// TestFilesThatCannotBeLoaded: what is wrong is said of the file that is wrong.
func TestFilesThatCannotBeLoaded(t *testing.T) {
	dir := t.TempDir()
	cert, key := pair(t, tlsfiles.SelfSigned{Dir: dir, Name: "x"})
	_, other := pair(t, tlsfiles.SelfSigned{Dir: dir, Name: "y"})
	none, huge := filepath.Join(dir, "none"), filepath.Join(dir, "huge")
	write(t, huge, append(read(t, cert), bytes.Repeat([]byte("\n"), 4<<20)...))
	for _, c := range []struct{ cert, key, want string }{
		{cert, key, ""},
		{none, key, none},
		{cert, none, none},
		{cert, other, "does not match"},
		{huge, key, huge + " is larger than"},
	} {
		p, err := tlsfiles.LoadPair(c.cert, c.key)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s and %s: %v", c.cert, c.key, err)
		}
		if err == nil && (len(p.Files()) != 2 || p.EndsFirst() != p.Certificate().Leaf) {
			t.Errorf("files %v", p.Files())
		}
	}
	for file, want := range map[string]string{cert: "", none: none, huge: huge + " is larger than", key: key} {
		b, err := tlsfiles.LoadBundle(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || (b == nil) != (want != "") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestWritingLeavesNothingHalf where it fails.
func TestWritingLeavesNothingHalf(t *testing.T) {
	dir := t.TempDir()
	if err := tlsfiles.WriteFile(filepath.Join(dir, "none", "f"), []byte("x"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "by"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := tlsfiles.WriteFile(taken, []byte("x"), 0o600); err == nil {
		t.Error("a folder was written over")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
