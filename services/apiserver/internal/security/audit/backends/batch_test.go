package backends

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// blockedWriter blocks writes until open is closed.
type blockedWriter struct {
	safeBuffer
	asked chan struct{} // one value per blocked write
	open  chan struct{}
}

func newBlockedWriter() *blockedWriter {
	return &blockedWriter{asked: make(chan struct{}, 1000), open: make(chan struct{})}
}

func (g *blockedWriter) Write(p []byte) (int, error) {
	g.asked <- struct{}{}
	<-g.open
	return g.safeBuffer.Write(p)
}

func batchLog(t *testing.T, f *fixture, g *blockedWriter, change func(*LogOptions)) *Backend {
	t.Helper()
	o := logOptions(stdoutPath)
	o.Mode = string(Batch)
	if change != nil {
		change(o)
	}
	b, err := NewLog(o, f.config, g)
	if err != nil {
		t.Fatal(err)
	}
	b.flushTimeout = time.Hour // never reached
	return b
}

// TestQueueOverflowIsCounted checks that events that find the queue full are counted as lost, and
// do not block.
func TestQueueOverflowIsCounted(t *testing.T) {
	fixture, blockedWriter := newFixture(t), newBlockedWriter()
	backend := batchLog(t, fixture, blockedWriter, nil)
	stop := fixture.runBackend(backend)
	_ = backend.Process(t.Context(), newEvent(0, 0))
	<-blockedWriter.asked // it is in delivery; 10 others may wait
	for n := range 15 {
		if err := backend.Process(t.Context(), newEvent(n+1, 0)); err != nil {
			t.Error(err)
		}
	}
	fixture.wantLost(pluginBuffer, 5)
	close(blockedWriter.open)
	stop()
	if got := idsOf(t, blockedWriter.String()); len(got) != 11 || got[0] != "e0" || got[10] != "e10" {
		t.Errorf("got delivered events %q, want e0 to e10", got)
	}
	_ = backend.Process(t.Context(), newEvent(99, 0))
	fixture.wantLost(pluginBuffer, 6)
}

// TestShutdownDeliversQueueInOrder checks that Run delivers all queued events in order when it
// ends.
func TestShutdownDeliversQueueInOrder(t *testing.T) {
	fixture, g := newFixture(t), newBlockedWriter()
	b := batchLog(t, fixture, g, func(o *LogOptions) { o.Batch = BatchOptions{BufferSize: 100, MaxSize: 7, MaxWait: time.Hour} })
	var want []string
	for n := range 40 {
		_ = b.Process(t.Context(), newEvent(n, 0))
		want = append(want, fmt.Sprint("e", n))
	}
	close(g.open)
	fixture.runBackend(b)() // stops at once, before or during collection
	if got := idsOf(t, g.String()); !slices.Equal(got, want) {
		t.Errorf("after Run ended: got delivered events %q, want %q", got, want)
	}
	fixture.wantLost(pluginBuffer, 0)
}

// TestQueueMemoryIsLimited checks that the memory of the queue is limited. Large events lose their
// objects before they are lost.
func TestQueueMemoryIsLimited(t *testing.T) {
	fixture, blockedWriter := newFixture(t), newBlockedWriter()
	backend := batchLog(t, fixture, blockedWriter, func(o *LogOptions) { o.Batch.BufferSize = 1000 })
	const eventBytes = 8 << 20
	large := newEvent(0, eventBytes)
	for n := range 20 {
		e := *large
		e.ID = fmt.Sprint("e", n)
		_ = backend.Process(t.Context(), &e)
	}
	if backend.queue.retainedBytes > maxQueued || len(backend.queue.events) < maxQueued/eventBytes {
		t.Errorf("got %d waiting events with %d bytes, want at most %d bytes", len(backend.queue.events), backend.queue.retainedBytes, maxQueued)
	}
	stop := fixture.runBackend(backend)
	close(blockedWriter.open)
	stop()
	text := blockedWriter.String()
	if got := idsOf(t, text); len(got)+fixture.lostEvents(pluginBuffer) != 20 {
		t.Errorf("got %d delivered and %d lost events, want 20 together", len(got), fixture.lostEvents(pluginBuffer))
	}
	if n := strings.Count(text, "requestObject"); n != maxQueued/eventBytes-1 {
		t.Errorf("got %d complete events, want %d", n, maxQueued/eventBytes-1)
	}
	if backend.queue.retainedBytes != 0 {
		t.Errorf("got %d bytes held in the end, want 0", backend.queue.retainedBytes)
	}
}

// TestBatchWaitsUntilFull checks that a batch with a long MaxWait is posted only when it is full.
func TestBatchWaitsUntilFull(t *testing.T) {
	f := newFixture(t)
	server := newWebhookServer(t, false, nil)
	o := webhookOptions(t, server.Server)
	o.Batch.MaxWait, o.Batch.MaxSize = time.Hour, 3
	b := f.newWebhook(o)
	defer f.runBackend(b)()
	for n := range 7 {
		_ = b.Process(t.Context(), newEvent(n, 0))
	}
	f.awaitTrue("posted", func() bool { return len(server.batches()) == 2 })
	for _, batch := range server.batches() {
		if len(batch) != 3 {
			t.Errorf("got a batch of %d events, want 3", len(batch))
		}
	}
}

// TestBatchSizeIsLimitedInBytes checks that a batch is full when its events reach the maximum size
// in bytes.
func TestBatchSizeIsLimitedInBytes(t *testing.T) {
	f := newFixture(t)
	server := newWebhookServer(t, false, nil)
	o := webhookOptions(t, server.Server)
	o.Batch.MaxWait, o.Truncate.MaxBatchSize = time.Hour, 5000
	b := f.newWebhook(o)
	defer f.runBackend(b)()
	for n := range 5 {
		_ = b.Process(t.Context(), newEvent(n, 2000))
	}
	f.awaitTrue("posted", func() bool { return len(server.batches()) == 2 })
	for _, batch := range server.batches() {
		if len(batch) != 2 {
			t.Errorf("got a batch of %d events, want 2", len(batch))
		}
	}
}
