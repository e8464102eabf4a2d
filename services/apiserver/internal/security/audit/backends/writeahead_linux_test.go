package backends

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/security/audit"
)

// copyAfterKill copies the log and its write-ahead file, as a kill of the process would leave them.
func copyAfterKill(t *testing.T, log string) (as string) {
	t.Helper()
	as = filepath.Join(t.TempDir(), "audit.log")
	for _, end := range []string{"", writeAheadSuffix} {
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

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An event of a read is written soon, or by the next process after a kill.
func TestPostponedLinesSurviveKill(t *testing.T) {
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
	for name, o := range map[string]*LogOptions{"the same mode": logOptions(copyAfterKill(t, log)), "another mode": logOptions(copyAfterKill(t, log))} {
		if name == "another mode" {
			o.Mode = string(BlockingStrict)
		}
		next := f.log(o, nil)
		if got := idsOf(t, readFile(t, o.Path)); !slices.Equal(got, []string{"e0", "e1", "e2"}) {
			t.Errorf("%s: after a kill and a start: got %q, want e0 e1 e2", name, got)
		}
		tell(next, 3, "list")
		if err := next.Close(); err != nil {
			t.Error(err)
		}
		if got := idsOf(t, readFile(t, o.Path)); !slices.Equal(got, []string{"e0", "e1", "e2", "e3"}) {
			t.Errorf("%s: after close: got %q, want e0 to e3", name, got)
		}
		if _, err := os.Stat(o.Path + writeAheadSuffix); !os.IsNotExist(err) {
			t.Errorf("%s: the write-ahead file was not removed: %v", name, err)
		}
	}
	tell(b, 3, "update")
	if got := idsOf(t, readFile(t, log)); !slices.Equal(got, []string{"e0", "e1", "e2", "e3"}) {
		t.Errorf("after the event of an update: got %q, want e0 to e3", got)
	}
	tell(b, 4, "watch")
	f.eventually("written by itself", func() bool { return len(idsOf(t, readFile(t, log))) == 5 })
	f.wantLost(logName, 0)
}

// A kill at any byte of the write of postponed lines loses, duplicates and tears no line.
func TestKillDuringWriteLosesNoLine(t *testing.T) {
	f := newFixture(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _, err := openWriteAheadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.mapFile(); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if !p.add(event(n, 0).AppendLine(nil)) {
			t.Fatal("no space for a line")
		}
	}
	waiting := string(p.waiting())
	places := []int{1, len(waiting) - 1}
	for range 60 {
		places = append(places, rand.IntN(len(waiting)))
	}
	for _, before := range []string{"", string(event(9, 0).AppendLine(nil)) + "\n", `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Meta`} {
		for _, wrote := range append(places, 0, len(waiting)/3, len(waiting)) {
			if before != "" && !strings.HasSuffix(before, "\n") && wrote > 0 {
				break // the newline after the torn line is written first
			}
			as := copyAfterKill(t, log)
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
			if got := readFile(t, as); got != want {
				t.Fatalf("%q, killed after %d bytes: %q", before, wrote, got)
			}
		}
	}
	f.wantLost(logName, 0)
}

// A kill during or right after a write of postponed and other lines loses and duplicates no postponed line.
func TestKillDuringLaterWriteLosesNoLine(t *testing.T) {
	f := newFixture(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	b := f.log(logOptions(log), nil)
	for n := range 3 {
		if err := b.Process(t.Context(), event(n, 0)); err != nil {
			t.Fatal(err)
		}
	}
	waits := readFile(t, log+writeAheadSuffix)
	write := event(3, 900)
	write.Verb = "update"
	if err := b.Process(t.Context(), write); err != nil {
		t.Fatal(err)
	}
	all := readFile(t, log)
	line := strings.LastIndex(all[:len(all)-1], "\n") + 1
	for _, before := range []string{"", string(event(9, 0).AppendLine(nil)) + "\n", strings.Repeat("x", 1<<20) + "\n"} {
		for _, at := range []int{line, line + 1, line + 500, len(all) - 1, len(all)} {
			as := filepath.Join(t.TempDir(), "audit.log")
			for name, text := range map[string]string{as: before + all[:at], as + writeAheadSuffix: waits} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			next := f.log(logOptions(as), nil)
			if err := next.Process(t.Context(), event(4, 0)); err != nil {
				t.Fatal(err)
			}
			if err := next.Close(); err != nil {
				t.Fatal(err)
			}
			want := before + all[:at]
			if !strings.HasSuffix(want, "\n") {
				want += "\n"
			}
			got := readFile(t, as)
			if !strings.HasPrefix(got, want) || !slices.Equal(idsOf(t, got[len(want):]), []string{"e4"}) {
				t.Errorf("after %d bytes, killed after %d of %d: %q", len(before), at, len(all), got[max(0, len(before)):])
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A torn line in the log is not continued, although postponed lines have the same beginning.
func TestTornLineIsNotContinued(t *testing.T) {
	f := newFixture(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	b := f.log(logOptions(log), nil)
	if err := b.Process(t.Context(), event(0, 0)); err != nil {
		t.Fatal(err)
	}
	as := copyAfterKill(t, log)
	const torn = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"e7","user":{`
	if err := os.WriteFile(as, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.log(logOptions(as), nil).Close(); err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(readFile(t, as), torn+"\n")
	if !ok || !slices.Equal(idsOf(t, rest), []string{"e0"}) {
		t.Errorf("%q", readFile(t, as))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// Recovered lines go to the end of a full log before it is rotated, so that a kill in between duplicates no
// line.
func TestRecoveryIntoFullLog(t *testing.T) {
	f := newFixture(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	b := f.log(logOptions(log), nil)
	for n := range 2 {
		if err := b.Process(t.Context(), event(n, 0)); err != nil {
			t.Fatal(err)
		}
	}
	waits := readFile(t, log+writeAheadSuffix)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	all := readFile(t, log)
	before := strings.Repeat("x", 1<<20-len(all)-1) + "\n"
	for name, text := range map[string]string{log: before + all[:len(all)/3], log + writeAheadSuffix: waits} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := logOptions(log)
	o.MaxSize = 1
	next := f.log(o, nil)
	if got := readFile(t, log); got != before+all {
		t.Errorf("%q", got[min(len(before), len(got)):])
	}
	write := event(2, 0)
	write.Verb = "update"
	if err := next.Process(t.Context(), write); err != nil {
		t.Fatal(err)
	}
	if got := idsOf(t, readFile(t, log)); !slices.Equal(got, []string{"e2"}) {
		t.Errorf("after the rotation: got %q, want e2", got)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

func TestInvalidWriteAheadFileIsIgnored(t *testing.T) {
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
		if err := os.WriteFile(log+writeAheadSuffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := f.log(logOptions(log), nil)
		if err := b.Process(t.Context(), event(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if got := idsOf(t, readFile(t, log)); !slices.Equal(got, []string{"e1"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Without a write-ahead file each event is written at once, and a warning is logged.
func TestLogWorksWithoutWriteAheadFile(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, log string){
		"another process's": func(t *testing.T, log string) {
			first := newFixture(t).log(logOptions(log), nil)
			if err := first.Process(t.Context(), event(0, 0)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = first.Close() })
		},
		"a folder": func(t *testing.T, log string) {
			if err := os.MkdirAll(log+writeAheadSuffix, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"a link": func(t *testing.T, log string) {
			if err := os.Symlink("elsewhere", log+writeAheadSuffix); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			log := filepath.Join(t.TempDir(), "audit.log")
			spoil(t, log)
			b := f.log(logOptions(log), nil)
			if !strings.Contains(f.logs.String(), log+writeAheadSuffix) {
				t.Errorf("no warning in the log: %s", f.logs)
			}
			if err := b.Process(t.Context(), event(1, 0)); err != nil {
				t.Fatal(err)
			}
			if got := idsOf(t, readFile(t, log)); !slices.Contains(got, "e1") {
				t.Errorf("got %q at once, want e1", got)
			}
		})
	}
}

// Truncating the write-ahead file in use does not end the process and loses no postponed line.
func TestTruncatedWriteAheadFileLosesNoLine(t *testing.T) {
	for _, after := range []int{0, 1, 2} {
		f := newFixture(t)
		log := filepath.Join(t.TempDir(), "audit.log")
		b := f.log(logOptions(log), nil)
		e := event(1, 0)
		for n := range 4 {
			if n == after {
				if err := os.Truncate(log+writeAheadSuffix, 0); err != nil {
					t.Fatal(err)
				}
			}
			if e.ID, e.Verb = string(rune('a'+n)), "get"; n == 2 {
				e.Verb = "update"
			}
			if err := b.Process(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if got := idsOf(t, readFile(t, log)); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Errorf("truncated after %d events: got %q, want a b c d", after, got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		f.wantLost(logName, 0)
	}
}

// A file that its owner removes while the next process opens it is not used.
func TestRemovedWriteAheadFileIsNotUsed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log"+writeAheadSuffix)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if f, err := openExclusive(name); err == nil {
					_, _ = os.Remove(name), f.Close()
				}
			}
		}
	})
	for range 2000 {
		f, err := openExclusive(name)
		if err != nil {
			continue // locked by the other goroutine
		}
		if _, err := os.Lstat(name); err != nil {
			t.Errorf("the opened file does not exist: %v", err)
		}
		_, _ = os.Remove(name), f.Close()
	}
	close(stop)
	all.Wait()
}

// In mode blocking-strict no event is postponed.
func TestBlockingStrictWritesAtOnce(t *testing.T) {
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
		if got := idsOf(t, readFile(t, o.Path)); len(got) != 1 {
			t.Errorf("%v: got %q, want one event", stage, got)
		}
		if _, err := os.Stat(o.Path + writeAheadSuffix); !os.IsNotExist(err) {
			t.Errorf("unexpected write-ahead file: %v", err)
		}
	}
}
