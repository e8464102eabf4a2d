package backends

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// TestProcessReturnsAfterWrite checks that in blocking mode an event is in the log when Process
// returns.
func TestProcessReturnsAfterWrite(t *testing.T) {
	f, out := newFixture(t), &safeBuffer{}
	b := f.newLog(logOptions(stdoutPath), out)
	for n := range 3 {
		if err := b.Process(t.Context(), newEvent(n, 10)); err != nil {
			t.Fatal(err)
		}
		if got := idsOf(t, out.String()); len(got) != n+1 {
			t.Fatalf("after %d events: got %q, want length %v", n+1, got, n+1)
		}
	}
	f.wantLost(logName, 0)
}

// TestLogFilesAreRotated checks that rotation loses no event, and that an event larger than a file
// is written without its objects.
func TestLogFilesAreRotated(t *testing.T) {
	fixture := newFixture(t)
	options := logOptions(filepath.Join(t.TempDir(), "new", "audit.log"))
	options.MaxSize, options.MaxBackup, options.Truncate.MaxEventSize = 1, 0, 1<<20
	backend := fixture.newLog(options, nil)
	const eventBytes, events = 100 << 10, 25
	for n := range events / 5 {
		var wg sync.WaitGroup
		for k := range 5 {
			wg.Go(func() {
				if err := backend.Process(context.Background(), newEvent(5*n+k, eventBytes)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	// An event that is larger than a file loses its objects.
	if err := backend.Process(t.Context(), newEvent(99, 2<<20)); err != nil {
		t.Fatal(err)
	}
	if err := backend.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(options.Path), "audit*.log"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Errorf("got %d files, want at least 3", len(files))
	}
	var lines []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 1<<20 {
			t.Errorf("%s: got %d bytes, want at most %d", file, len(data), 1<<20)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got mode %v (%v), want 0600", file, info.Mode(), err)
		}
		lines = append(lines, idsOf(t, string(data))...)
	}
	slices.Sort(lines)
	if len(slices.Compact(lines)) != events+1 {
		t.Errorf("got events %q, want %d", lines, events+1)
	}
	data, err := os.ReadFile(options.Path)
	if err != nil || !bytes.Contains(data, []byte(`"auditID":"e99"`)) || !bytes.Contains(data, []byte(audit.Truncated)) {
		t.Errorf("got error %v, want the event e99 without objects in the file", err)
	}
	fixture.wantLost(logName, 0)
}

// TestRotationOverwritesNoFile checks that rotations within a millisecond do not overwrite a file.
func TestRotationOverwritesNoFile(t *testing.T) {
	fixture := newFixture(t)
	o := logOptions(filepath.Join(t.TempDir(), "audit.log"))
	o.MaxSize = 1
	b := fixture.newLog(o, nil)
	const events = 60
	for n := range events { // each fills more than half a file
		if err := b.Process(t.Context(), newEvent(n, 600<<10)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(o.Path), "audit*.log"))
	if err != nil || len(files) != events {
		t.Errorf("got %d files, want %d: %v", len(files), events, err)
	}
	fixture.wantLost(logName, 0)
}

// TestCloseDuringProcessLosesNoEvent checks that an event is written although Close is called during
// Process.
func TestCloseDuringProcessLosesNoEvent(t *testing.T) {
	fixture, out := newFixture(t), &safeBuffer{}
	backend, err := NewLog(logOptions(stdoutPath), fixture.config, out)
	if err != nil {
		t.Fatal(err)
	}
	const events = 20
	var telling sync.WaitGroup
	telling.Go(func() {
		for n := range events {
			e := newEvent(n, 0)
			e.Stage = audit.RequestReceived
			_ = backend.Process(context.Background(), e)
		}
	})
	if err := backend.Close(); err != nil {
		t.Error(err)
	}
	telling.Wait()
	fixture.awaitTrue("written", func() bool { return len(idsOf(t, out.String())) == events })
}

// TestFullDiskIsCounted checks that events for a full disk are counted as lost in every mode, and
// are errors in strict mode only.
func TestFullDiskIsCounted(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	for _, mode := range Modes() {
		f := newFixture(t)
		o := logOptions(full)
		o.Mode = mode
		b := f.newLog(o, nil)
		stop := f.runBackend(b)
		var errs []error
		for n := range 3 {
			errs = append(errs, b.Process(t.Context(), newEvent(n, 0)))
		}
		f.awaitTrue("lost "+mode, func() bool { return f.lostEvents(logName) == 3 })
		stop()
		f.wantLost(logName, 3)
		for _, err := range errs {
			if strict := mode == string(BlockingStrict); (err != nil) != strict {
				t.Errorf("mode %s: got error %v, want an error: %t", mode, err, strict)
			}
		}
	}
}

// TestUnwritablePathIsRejected checks that NewLog returns an error that names an unusable path.
func TestUnwritablePathIsRejected(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "file", "below")} {
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewLog(logOptions(path), newFixture(t).config, nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("NewLog(%q): got error %v, want one that names the path", path, err)
		}
	}
}

// partialWriter writes only a part of some lines.
type partialWriter struct {
	safeBuffer
	parts []int // bytes of each write; -1 means all
}

func (s *partialWriter) Write(p []byte) (int, error) {
	n := s.parts[0]
	s.parts = s.parts[1:]
	if n < 0 {
		return s.safeBuffer.Write(p)
	}
	n, _ = s.safeBuffer.Write(p[:n])
	return n, errors.New("no space left on device")
}

// TestTornLineIsEnded checks that a torn line is ended before the next line.
func TestTornLineIsEnded(t *testing.T) {
	fixture := newFixture(t)
	out := &partialWriter{parts: []int{-1, 20, 0, -1, -1}}
	b, err := NewLog(logOptions(stdoutPath), fixture.config, out)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		_ = b.Process(t.Context(), newEvent(n, 0))
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 || len(lines[1]) != 20 {
		t.Fatalf("got lines %q, want 4, the second with 20 bytes", lines)
	}
	if got := idsOf(t, lines[0]+"\n"+lines[2]+"\n"+lines[3]+"\n"); !slices.Equal(got, []string{"e0", "e3", "e4"}) {
		t.Errorf("got events %q, want [e0 e3 e4]", got)
	}
	fixture.wantLost(logName, 2)
}

// TestTornLineOfKilledProcessIsEnded checks that a line that a killed process left incomplete is
// ended before the next line.
func TestTornLineOfKilledProcessIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const before = `{"kind":"Event","auditID":"whole"}` + "\n" + `{"kind":"Ev`
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newFixture(t).newLog(logOptions(path), nil)
	if err := b.Process(t.Context(), newEvent(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(string(data), before+"\n")
	if got := idsOf(t, rest); !ok || !slices.Equal(got, []string{"e1"}) {
		t.Errorf("got file %q, want a complete line of event e1 at its end", data)
	}
}

// TestLargeEventsAreShortened checks that large events lose first their objects, then long texts, and that an
// event that is still too large is lost.
func TestLargeEventsAreShortened(t *testing.T) {
	fixture, out := newFixture(t), &safeBuffer{}
	options := logOptions(stdoutPath)
	options.Truncate.Enabled = true
	b := fixture.newLog(options, out)
	long := newEvent(2, 2000)
	long.URI = strings.Repeat("u", 600)
	hopeless := newEvent(3, 0)
	hopeless.Verb = strings.Repeat("v", 2000)
	for _, e := range []*audit.Event{newEvent(0, 100), newEvent(1, 2000), long, hopeless} {
		if err := b.Process(t.Context(), e); err != nil {
			t.Error(err)
		}
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("got %d lines, want 3: %q", len(lines), lines)
	}
	for i, want := range []bool{false, true, true} {
		if len(lines[i]) >= 1<<10 {
			t.Errorf("line %d: got %d bytes, want fewer than 1024", i, len(lines[i]))
		}
		if got := strings.Contains(lines[i], `"audit.k8s.io/truncated":"true"`); got != want {
			t.Errorf("line %d: got annotation truncated: %t, want %t: %s", i, got, want, lines[i])
		}
		if got := strings.Contains(lines[i], "requestObject"); got == want {
			t.Errorf("line %d: got a request object: %t, want one only in whole events: %s", i, got, lines[i])
		}
	}
	fixture.wantLost(pluginTruncate, 1)
	options.Mode = string(BlockingStrict)
	if err := fixture.newLog(options, out).Process(t.Context(), hopeless); err == nil {
		t.Error("Process of a lost event: got no error, want one")
	}
}

// TestLegacyFormatHasOneLinePerEvent checks the lines of the legacy format, with and without values.
func TestLegacyFormatHasOneLinePerEvent(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	event := &audit.Event{
		Stage:        audit.ResponseComplete,
		ID:           "i",
		Verb:         "list",
		URI:          "/x?a=1&b=2",
		UserAgent:    `u"a`,
		SourceIPs:    []string{"1.2.3.4", "5.6.7.8"},
		Received:     at,
		User:         &request.User{Name: "ada", Groups: []string{"a", `b"c`}},
		Impersonated: &request.User{Name: "eve"},
		Object:       &audit.Reference{Namespace: "ns"},
		Status:       &metav1.Status{Code: 403},
	}
	want := `2026-01-02T03:04:05.0000006Z AUDIT: id="i" stage="ResponseComplete" ip="1.2.3.4" ` +
		`method="list" user="ada" groups="\"a\",\"b\\\"c\"" as="eve" asgroups="<lookup>" user-agent="u\"a" namespace="ns" uri="/x?a=1&b=2" response="403"`
	if got := string(appendLegacy(nil, event)); got != want {
		t.Errorf("full event: got line\n%s\nwant\n%s", got, want)
	}
	want = `2026-01-02T03:04:05.0000006Z AUDIT: id="" stage="RequestReceived" ip="<unknown>" ` +
		`method="" user="<none>" groups="<none>" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="" response="<deferred>"`
	if got := string(appendLegacy(nil, &audit.Event{Received: at})); got != want {
		t.Errorf("empty event: got line\n%s\nwant\n%s", got, want)
	}
}
