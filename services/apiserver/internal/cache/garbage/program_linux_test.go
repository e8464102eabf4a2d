package garbage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const smaps = `00400000-02f20000 r-xp 00000000 fe:00 10199625                           /opt/the program
Rss:               32832 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
02f20000-05e2c000 r--p 02b20000 fe:00 10199625                           /opt/the program
Anonymous:             0 kB
05e2c000-05f25000 rw-p 05a2c000 fe:00 10199625                           /opt/the program
Anonymous:             0 kB
05f25000-05f26000 r--p 05a2c000 fe:00 10199625                           /opt/the program
Rss:                   4 kB
Anonymous:             4 kB
06000000-06001000 r--s 00000000 fe:00 10199625                           /opt/the program
Anonymous:             0 kB
07000000-07001000 r--p 00000000 fe:00 1                                  /lib/libc.so
Anonymous:             0 kB
08000000-08001000 r--p 00000000 00:00 0 
Anonymous:             0 kB
zz-yy r--p 00000000 fe:00 10199625                           /opt/the program
Anonymous:             0 kB
`

// TestUnchanged finds what can be mapped again as it was: not what may be written, or was.
func TestUnchanged(t *testing.T) {
	want := []span{{0x400000, 0x2f20000}, {0x2f20000, 0x5e2c000}}
	if got := unchanged([]byte(smaps), "/opt/the program"); !slices.Equal(got, want) {
		t.Errorf("found %x, want %x", got, want)
	}
	if got := unchanged([]byte(smaps), "/opt/the"); len(got) > 0 {
		t.Errorf("of another file there is %x", got)
	}
}

// TestUnmappedPagesComeBack: they leave the process, and are the same when they are read again.
func TestUnmappedPagesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	text := strings.Repeat("what a start needs. ", 1<<16)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	if string(b) != text {
		t.Fatal("the file is not what was written")
	}
	resident := func() (kb string) {
		maps, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		_, of, _ := strings.Cut(string(maps), path)
		_, rss, _ := strings.Cut(of, "\nRss:")
		kb, _, _ = strings.Cut(rss, "\n")
		return strings.TrimSpace(kb)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	p := program{found: true, places: unchanged(maps, path)}
	if len(p.places) != 1 || resident() == "0 kB" {
		t.Fatalf("%x are mapped, %s resident", p.places, resident())
	}
	if p.unmap(); resident() != "0 kB" {
		t.Errorf("%s are resident", resident())
	}
	if string(b) != text {
		t.Error("the file is not what it was")
	}
}

// TestProgramGoesOn without its pages, once it has found where they are.
func TestProgramGoesOn(t *testing.T) {
	var p program
	p.unmap()
	p.unmap()
	if len(p.places) < 2 {
		t.Errorf("the program is at %x", p.places)
	}
}
