package backends

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/audit"
)

// killed is what a killed process leaves: its log, and the file beside it, as they are now.
func killed(t *testing.T, log string) (as string) {
	t.Helper()
	as = filepath.Join(t.TempDir(), "audit.log")
	for _, end := range []string{"", pendingName} {
		text, err := os.ReadFile(log + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(as+end, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return as
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLinesOutliveTheProcess: what was told of a read is written soon, or by the next process.
func TestLinesOutliveTheProcess(t *testing.T) {
	f := newFixture(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	b := f.log(logOptions(log), nil)
	tell := func(b *Backend, n int, verb string) {
		t.Helper()
		e := event(n, 10)
		e.Verb = verb
		if err := b.Process(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		tell(b, n, "get")
	}
	for name, o := range map[string]*LogOptions{"the same mode": logOptions(killed(t, log)), "another mode": logOptions(killed(t, log))} {
		if name == "another mode" {
			o.Mode = string(BlockingStrict)
		}
		next := f.log(o, nil)
		if got := idsOf(t, read(t, o.Path)); !slices.Equal(got, []string{"e0", "e1", "e2"}) {
			t.Errorf("%s: after a kill and a start: %q", name, got)
		}
		tell(next, 3, "list")
		if err := next.Close(); err != nil {
			t.Error(err)
		}
		if got := idsOf(t, read(t, o.Path)); !slices.Equal(got, []string{"e0", "e1", "e2", "e3"}) {
			t.Errorf("%s: at the end: %q", name, got)
		}
		if _, err := os.Stat(o.Path + pendingName); !os.IsNotExist(err) {
			t.Errorf("%s: the file of lines that wait is left: %v", name, err)
		}
	}
	tell(b, 3, "update")
	if got := idsOf(t, read(t, log)); !slices.Equal(got, []string{"e0", "e1", "e2", "e3"}) {
		t.Errorf("with a write: %q", got)
	}
	tell(b, 4, "watch")
	f.eventually("written by itself", func() bool { return len(idsOf(t, read(t, log))) == 5 })
	f.wantLost(logName, 0)
}

// TestAKillAtAnyPlace of the write of lines that wait: none is lost, doubled or torn.
func TestAKillAtAnyPlace(t *testing.T) {
	f := newFixture(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _, err := besideLog(log)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.begin()
	for n := range 3 {
		if !p.add(event(n, 0).AppendLine(nil)) {
			t.Fatal("there is room")
		}
	}
	waiting := string(p.lines())
	places := []int{1, len(waiting) - 1}
	for range 60 {
		places = append(places, rand.IntN(len(waiting)))
	}
	for _, before := range []string{"", string(event(9, 0).AppendLine(nil)) + "\n", `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Meta`} {
		for _, wrote := range append(places, 0, len(waiting)/3, len(waiting)) {
			if before != "" && !strings.HasSuffix(before, "\n") && wrote > 0 {
				break // the end of that line is written first
			}
			as := killed(t, log)
			if err := os.WriteFile(as, []byte(before+waiting[:wrote]), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := f.log(logOptions(as), nil).Close(); err != nil {
				t.Fatal(err)
			}
			want := before + waiting
			if before != "" && !strings.HasSuffix(before, "\n") {
				want = before + "\n" + waiting
			}
			if got := read(t, as); got != want {
				t.Fatalf("%q, killed after %d bytes: %q", before, wrote, got)
			}
		}
	}
	f.wantLost(logName, 0)
}

// TestFilesThatAreNotLines of this log are not written to it.
func TestFilesThatAreNotLines(t *testing.T) {
	head := func(n uint64, mark string) string {
		return string(binary.NativeEndian.AppendUint64(nil, n)) + mark
	}
	for name, text := range map[string]string{
		"nothing":          "",
		"too short":        "x",
		"another mark":     head(3, "audited0") + "{}\n",
		"more than it has": head(4, "audited1") + "{}\n",
		"far more":         head(1<<63, "audited1") + "{}\n",
	} {
		f := newFixture(t)
		log := filepath.Join(t.TempDir(), "audit.log")
		if err := os.WriteFile(log+pendingName, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := f.log(logOptions(log), nil)
		if err := b.Process(t.Context(), event(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if got := idsOf(t, read(t, log)); !slices.Equal(got, []string{"e1"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestNoFileToWaitIn: lines are written one by one then, and it is said.
func TestNoFileToWaitIn(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, log string){
		"another process's": func(t *testing.T, log string) {
			first := newFixture(t).log(logOptions(log), nil)
			if err := first.Process(t.Context(), event(0, 0)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = first.Close() })
		},
		"a folder": func(t *testing.T, log string) {
			if err := os.MkdirAll(log+pendingName, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"a link": func(t *testing.T, log string) {
			if err := os.Symlink("elsewhere", log+pendingName); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			log := filepath.Join(t.TempDir(), "audit.log")
			spoil(t, log)
			b := f.log(logOptions(log), nil)
			if !strings.Contains(f.logs.String(), log+pendingName) {
				t.Errorf("it is not said: %s", f.logs)
			}
			if err := b.Process(t.Context(), event(1, 0)); err != nil {
				t.Fatal(err)
			}
			if got := idsOf(t, read(t, log)); !slices.Contains(got, "e1") {
				t.Errorf("at once: %q", got)
			}
		})
	}
}

// TestAFileThatIsCutOff while it is used ends nothing.
func TestAFileThatIsCutOff(t *testing.T) {
	f := newFixture(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	b := f.log(logOptions(log), nil)
	if err := os.Truncate(log+pendingName, 0); err != nil {
		t.Fatal(err)
	}
	e := event(1, 0)
	for n := range 3 {
		e.ID = string(rune('a' + n))
		if err := b.Process(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if got := idsOf(t, read(t, log)); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
	f.wantLost(logName, 0)
}

// TestStrictLinesDoNotWait: a request hangs on them.
func TestStrictLinesDoNotWait(t *testing.T) {
	for _, stage := range []audit.Stage{audit.RequestReceived, audit.ResponseComplete} {
		f := newFixture(t)
		o := logOptions(filepath.Join(t.TempDir(), "audit.log"))
		o.Mode = string(BlockingStrict)
		b := f.log(o, nil)
		e := event(1, 0)
		e.Stage = stage
		if err := b.Process(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if got := idsOf(t, read(t, o.Path)); len(got) != 1 {
			t.Errorf("%v: %q", stage, got)
		}
		if _, err := os.Stat(o.Path + pendingName); !os.IsNotExist(err) {
			t.Errorf("it has a file to wait in: %v", err)
		}
	}
}
