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
	// Watches have a timeout of a few seconds, because servers send a bookmark shortly before the
	// end.
	minWatchSeconds = 3
	maxWatchSeconds = 5
	retryAfter      = 100 * time.Millisecond

	// A slow watcher pauses for slowFor after one in slowOneIn events.
	slowOneIn = 15
	slowFor   = 300 * time.Millisecond
)

// watcher is a client that watches a selection. It resumes where a stream ended, and lists again
// when the revision has expired.
type watcher struct {
	*source
	rand *rand.Rand
	at   int // index of the current replica
	form form

	streaming bool // gets the initial state from the watch instead of a list
	rotate    bool // uses the next replica after each stream
	slow      bool // pauses occasionally
}

func newWatcher(t *Traffic, name string, s history.Selection, at int) *watcher {
	w := &watcher{at: at, rand: t.source()}
	w.source = newSource(t, name, s, func() (int, form) { return w.at, w.form })
	return w
}

// run watches until ctx ends. It resumes from the last revision, or lists again after 410.
func (w *watcher) run(ctx context.Context) {
	revision := ""
	for ctx.Err() == nil {
		next, err := w.stream(ctx, revision)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			next = ""
		}
		revision = next
		if w.rotate {
			w.at = (w.at + 1) % len(w.replicas)
		}
		if err != nil {
			pause(ctx, retryAfter)
		}
	}
}

// stream watches once, from a revision or, if that is "", from a new list. It returns the revision
// to resume at.
func (w *watcher) stream(ctx context.Context, revision string) (string, error) {
	seconds := minWatchSeconds + w.rand.Int64N(maxWatchSeconds-minWatchSeconds+1)
	o := metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: revision}
	if revision == "" && w.streaming {
		yes := true
		o.SendInitialEvents = &yes
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	} else if revision == "" {
		var err error
		if o.ResourceVersion, err = w.relist(ctx); err != nil {
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

// relist lists and returns the revision of the list.
func (w *watcher) relist(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	if _, err := w.list(ctx, metav1.ListOptions{}); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return formatRevision(w.listed.Revision), nil
}

// streams returns the number of streams so far.
func (w *watcher) streams() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watch.Streams)
}
