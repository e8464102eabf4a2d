package backends

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newFIFO creates a named pipe that is open for reading until the test ends.
func newFIFO(t *testing.T) (path string, reader *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "audit.log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	return path, reader
}

// readUntil reads lines up to the line of an event and returns the IDs of the complete lines.
func readUntil(t *testing.T, reader *os.File, eventID string) (ids []string) {
	t.Helper()
	lines := bufio.NewReader(reader)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("got error %v after events %q, want event %s", err, ids, eventID)
		}
		var e struct{ AuditID string }
		if json.Unmarshal([]byte(line), &e) != nil {
			continue // incomplete line
		}
		ids = append(ids, e.AuditID)
		if e.AuditID == eventID {
			return ids
		}
	}
}

// TestUnreadPipeLosesEventsInTime checks that an unread pipe takes what fits. It does not block
// requests beyond their deadline, nor shutdown.
func TestUnreadPipeLosesEventsInTime(t *testing.T) {
	const size = 20 << 10 // a pipe holds 64 KiB
	t.Run(string(Batch), func(t *testing.T) {
		fixture := newFixture(t)
		path, _ := newFIFO(t)
		o := logOptions(path)
		o.Mode, o.Truncate.MaxEventSize = string(Batch), 1<<20
		backend := fixture.newLog(o, nil)
		backend.flushTimeout = time.Millisecond
		stop := fixture.runBackend(backend)
		for lost := range 5 {
			if err := backend.Process(t.Context(), newEvent(lost, size)); err != nil {
				t.Fatal(err)
			}
		}
		fixture.awaitTrue("written", func() bool { return len(backend.deliverer.(*lineWriter).lock) == 1 })
		stop()
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
		if fixture.lostEvents(logName) == 0 {
			t.Error("unread pipe: got no lost event, want some")
		}
	})
	for _, mode := range []Mode{Blocking, BlockingStrict} {
		t.Run(string(mode), func(t *testing.T) {
			fixture := newFixture(t)
			path, reader := newFIFO(t)
			o := logOptions(path)
			o.Mode, o.Truncate.MaxEventSize = string(mode), 1<<20
			backend := fixture.newLog(o, nil)
			late, cancel := context.WithDeadline(t.Context(), time.Now())
			defer cancel()
			lost, failed := 0, error(nil)
			for ; fixture.lostEvents(logName) == 0; lost++ {
				e := newEvent(lost, size)
				e.Verb = "update"
				failed = backend.Process(late, e)
			}
			if (failed != nil) != (mode == BlockingStrict) {
				t.Errorf("lost event in mode %s: got error %v, want an error: %t", mode, failed, mode == BlockingStrict)
			}
			fixture.wantLost(logName, 1)
			// A reader that arrives later gets the next event complete.
			done := make(chan error)
			go func() { done <- backend.Process(t.Context(), newEvent(100, size)) }()
			want := fmt.Sprint([]string{"e0", "e1", "e2", "e3", "e4", "e5"}[:lost-1], " [e100]")
			ids := readUntil(t, reader, "e100")
			if got := fmt.Sprint(ids[:len(ids)-1], " [e100]"); got != want {
				t.Errorf("reader that arrived late: got events %s, want %s", got, want)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShutdownEndsRequestThatWaitsForPipe checks that shutdown ends the wait of a request without a
// deadline.
func TestShutdownEndsRequestThatWaitsForPipe(t *testing.T) {
	fixture := newFixture(t)
	path, reader := newFIFO(t)
	o := logOptions(path)
	o.Truncate.MaxEventSize = 1 << 20
	backend := fixture.newLog(o, nil)
	backend.deliverer.(*lineWriter).flushTimeout = time.Millisecond
	done := make(chan error)
	go func() { done <- backend.Process(context.WithoutCancel(t.Context()), newEvent(0, 1<<19)) }()
	fixture.awaitTrue("written", func() bool { return len(backend.deliverer.(*lineWriter).lock) == 1 })
	backend.BeginShutdown()
	if err := <-done; err != nil {
		t.Error(err)
	}
	fixture.wantLost(logName, 1)
	// Later events are written if there is a reader.
	go func() { done <- backend.Process(t.Context(), newEvent(1, 10)) }()
	readUntil(t, reader, "e1")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := backend.Close(); err != nil {
		t.Error(err)
	}
	fixture.wantLost(logName, 1)
}

// TestLateReaderGetsAllEvents checks that an event waits for the reader of a pipe.
func TestLateReaderGetsAllEvents(t *testing.T) {
	fixture := newFixture(t)
	path, reader := newFIFO(t)
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	b := fixture.newLog(logOptions(path), nil)
	done := make(chan error)
	go func() { done <- b.Process(t.Context(), newEvent(0, 10)) }()
	reader, err := os.Open(path) // waits for the writer
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if ids := readUntil(t, reader, "e0"); len(ids) != 1 {
		t.Errorf("got %q, want only e0", ids)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	fixture.wantLost(logName, 0)
}

// TestAbandonedWriteToStdoutCompletesFirst checks that an abandoned write is completed before later
// events.
func TestAbandonedWriteToStdoutCompletesFirst(t *testing.T) {
	fixture := newFixture(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := logOptions(stdoutPath)
	o.Truncate.MaxEventSize = 1 << 20
	backend, err := NewLog(o, fixture.config, struct{ *os.File }{writer}) // without write deadlines
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	for n := range 2 {
		if err := backend.Process(late, newEvent(n, 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	fixture.wantLost(logName, 2)
	done := make(chan error)
	go func() { done <- backend.Process(t.Context(), newEvent(2, 10)) }()
	if got := strings.Join(readUntil(t, reader, "e2"), " "); !strings.HasPrefix(got, "e0 ") {
		t.Errorf("got %s, want e0 first", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, c := range []func() error{backend.Close, writer.Close, reader.Close} {
		if err := c(); err != nil {
			t.Error(err)
		}
	}
}
