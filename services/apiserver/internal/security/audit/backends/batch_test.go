package backends

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// gated is a place that takes nothing until it is opened.
type gated struct {
	safeBuffer
	asked chan struct{} // one for each write that waits
	open  chan struct{}
}

func newGated() *gated { return &gated{asked: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gated) Write(p []byte) (int, error) {
	g.asked <- struct{}{}
	<-g.open
	return g.safeBuffer.Write(p)
}

func batchLog(t *testing.T, f *fixture, g *gated, change func(*LogOptions)) *Backend {
	t.Helper()
	o := logOptions(standard)
	o.Mode = string(Batch)
	if change != nil {
		change(o)
	}
	b, err := NewLog(o, f.config, g)
	if err != nil {
		t.Fatal(err)
	}
	b.flush = time.Hour // it is taken, however slow the machine is
	return b
}

// TestWhatFindsNoRoomIsCounted, and nobody waits for it.
func TestWhatFindsNoRoomIsCounted(t *testing.T) {
	f, g := newFixture(t), newGated()
	b := batchLog(t, f, g, nil)
	stop := f.run(b)
	_ = b.Process(t.Context(), event(0, 0))
	<-g.asked // it is on its way, and 10 others may wait
	for n := range 15 {
		if err := b.Process(t.Context(), event(n+1, 0)); err != nil {
			t.Error(err)
		}
	}
	f.wantLost(pluginBuffer, 5)
	close(g.open)
	stop()
	if got := idsOf(t, g.String()); len(got) != 11 || got[0] != "e0" || got[10] != "e10" {
		t.Errorf("delivered %q", got)
	}
	_ = b.Process(t.Context(), event(99, 0))
	f.wantLost(pluginBuffer, 6)
}

// TestTheRestGoesInOrder when the server ends.
func TestTheRestGoesInOrder(t *testing.T) {
	f, g := newFixture(t), newGated()
	b := batchLog(t, f, g, func(o *LogOptions) { o.Batch = BatchOptions{BufferSize: 100, MaxSize: 7, MaxWait: time.Hour} })
	var want []string
	for n := range 40 {
		_ = b.Process(t.Context(), event(n, 0))
		want = append(want, fmt.Sprint("e", n))
	}
	close(g.open)
	f.run(b)() // at once: nothing has been collected, or some
	if got := idsOf(t, g.String()); !slices.Equal(got, want) {
		t.Errorf("delivered %q", got)
	}
	f.wantLost(pluginBuffer, 0)
}

// TestMemoryIsBounded: large events lose their objects before they are lost.
func TestMemoryIsBounded(t *testing.T) {
	f, g := newFixture(t), newGated()
	b := batchLog(t, f, g, func(o *LogOptions) { o.Batch.BufferSize = 1000 })
	const each = 8 << 20
	large := event(0, each)
	for n := range 20 {
		e := *large
		e.ID = fmt.Sprint("e", n)
		_ = b.Process(t.Context(), &e)
	}
	if b.queue.held > maxQueued || len(b.queue.events) < maxQueued/each {
		t.Errorf("%d events of %d bytes wait", len(b.queue.events), b.queue.held)
	}
	stop := f.run(b)
	close(g.open)
	stop()
	text := g.String()
	if got := idsOf(t, text); len(got)+f.lost(pluginBuffer) != 20 {
		t.Errorf("%d events delivered, %d lost", len(got), f.lost(pluginBuffer))
	}
	if n := strings.Count(text, "requestObject"); n != maxQueued/each-1 {
		t.Errorf("%d are whole", n)
	}
	if b.queue.held != 0 {
		t.Errorf("%d bytes are held for ever", b.queue.held)
	}
}

// TestBatchesWait for others, for a while.
func TestBatchesWait(t *testing.T) {
	f := newFixture(t)
	h := newHook(t, false, nil)
	o := webhookOptions(t, h.Server)
	o.Batch.MaxWait, o.Batch.MaxSize = time.Hour, 3
	b := f.webhook(o)
	defer f.run(b)()
	for n := range 7 {
		_ = b.Process(t.Context(), event(n, 0))
	}
	f.eventually("posted", func() bool { return len(h.seen()) == 2 })
	for _, batch := range h.seen() {
		if len(batch) != 3 {
			t.Errorf("a batch of %d events", len(batch))
		}
	}
}

// TestBatchesAreBoundedInBytes too.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	f := newFixture(t)
	h := newHook(t, false, nil)
	o := webhookOptions(t, h.Server)
	o.Batch.MaxWait, o.Truncate.MaxBatchSize = time.Hour, 5000
	b := f.webhook(o)
	defer f.run(b)()
	for n := range 5 {
		_ = b.Process(t.Context(), event(n, 2000))
	}
	f.eventually("posted", func() bool { return len(h.seen()) == 2 })
	for _, batch := range h.seen() {
		if len(batch) != 2 {
			t.Errorf("a batch of %d events", len(batch))
		}
	}
}
