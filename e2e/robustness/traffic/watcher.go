package traffic

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"binnacle/e2e/robustness/history"
)

const (
	// Watches last as many seconds, so that there are bookmarks: a server sends
	// one shortly before the end.
	minWatchSeconds = 3
	maxWatchSeconds = 5
	retryAfter      = 100 * time.Millisecond

	// A slow reader stops for slowFor after one in slowOneIn events.
	slowOneIn = 15
	slowFor   = 300 * time.Millisecond
)

// watcher is a client that watches a selection as long as it may: it goes on
// where a stream ended, and begins anew when that is no longer possible.
type watcher struct {
	*source
	rand *rand.Rand
	at   int // replica that is asked
	form form

	streaming bool // begins with the state in the watch instead of a list
	wander    bool // asks another replica after each stream
	slow      bool // does not read for a while now and then
}

func newWatcher(t *Traffic, name string, s history.Selection, at int) *watcher {
	w := &watcher{at: at, rand: t.source()}
	w.source = newSource(t, name, s, func() (int, form) { return w.at, w.form })
	return w
}

func (w *watcher) run(ctx context.Context) {
	revision := ""
	for ctx.Err() == nil {
		next, err := w.stream(ctx, revision)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			next = ""
		}
		revision = next
		if w.wander {
			w.at = (w.at + 1) % len(w.replicas)
		}
		if err != nil {
			pause(ctx, retryAfter)
		}
	}
}

// stream watches once, after a revision or anew, and returns the one to go on
// from.
func (w *watcher) stream(ctx context.Context, revision string) (string, error) {
	seconds := minWatchSeconds + w.rand.Int64N(maxWatchSeconds-minWatchSeconds+1)
	o := metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: revision}
	if revision == "" && w.streaming {
		yes := true
		o.SendInitialEvents, o.ResourceVersionMatch = &yes, metav1.ResourceVersionMatchNotOlderThan
	} else if revision == "" {
		var err error
		if o.ResourceVersion, err = w.anew(ctx); err != nil {
			return "", err
		}
		revision = o.ResourceVersion
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+timeLimit)
	defer cancel()
	before := w.streams()
	stream, err := w.follow(ctx, o)
	if err != nil {
		return revision, err
	}
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			err = apierrors.FromObject(e.Object)
			break
		}
		if w.slow && w.rand.IntN(slowOneIn) == 0 {
			pause(ctx, slowFor)
		}
	}
	stream.Stop()
	if w.streams() > before {
		revision = formatRevision(w.reached.Load())
	}
	return revision, err
}

// anew lists, and returns the revision to go on from.
func (w *watcher) anew(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	if _, err := w.list(ctx, metav1.ListOptions{}); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return formatRevision(w.listed.Revision), nil
}

// streams is how many have begun.
func (w *watcher) streams() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watch.Streams)
}
