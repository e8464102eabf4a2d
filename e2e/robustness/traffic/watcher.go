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
	retryPause      = 100 * time.Millisecond

	// A slow watcher pauses for slowPause after one of slowEvents events.
	slowEvents = 15
	slowPause  = 300 * time.Millisecond
)

// watcher is a client that watches a selection. It resumes where a stream ended, and lists again
// when the revision has expired.
type watcher struct {
	*source
	rand     *rand.Rand
	replica  int // index of the current replica
	encoding encoding

	streamsState bool // gets the initial state from the watch instead of a list
	rotates      bool // uses the next replica after each stream
	isSlow       bool // pauses occasionally
}

// newWatcher returns a watcher whose first replica has the index at.
func newWatcher(t *Traffic, name string, s history.Selection, at int) *watcher {
	w := &watcher{replica: at, rand: t.newRand()}
	w.source = newSource(t, name, s, func() (int, encoding) { return w.replica, w.encoding })
	return w
}

// run watches until ctx ends. It resumes from the last revision, or lists again after 410.
func (w *watcher) run(ctx context.Context) {
	revision := ""
	for ctx.Err() == nil {
		next, err := w.watchOnce(ctx, revision)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			next = ""
		}
		revision = next
		if w.rotates {
			w.replica = (w.replica + 1) % len(w.replicas)
		}
		if err != nil {
			pause(ctx, retryPause)
		}
	}
}

// watchOnce watches once, from a revision or, if that is "", from a new list. It returns the
// revision to resume at.
func (w *watcher) watchOnce(ctx context.Context, revision string) (string, error) {
	seconds := minWatchSeconds + w.rand.Int64N(maxWatchSeconds-minWatchSeconds+1)
	listOptions := metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: revision}
	if revision == "" && w.streamsState {
		yes := true
		listOptions.SendInitialEvents = &yes
		listOptions.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	} else if revision == "" {
		var err error
		if listOptions.ResourceVersion, err = w.listRevision(ctx); err != nil {
			return "", err
		}
		revision = listOptions.ResourceVersion
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+responseTimeout)
	defer cancel()
	before := w.streamCount()
	stream, err := w.startWatch(ctx, listOptions)
	if err != nil {
		return revision, err
	}
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			err = apierrors.FromObject(e.Object)
			break
		}
		if w.isSlow && w.rand.IntN(slowEvents) == 0 {
			pause(ctx, slowPause)
		}
	}
	stream.Stop()
	if w.streamCount() > before {
		revision = formatRevision(w.deliveredRevision.Load())
	}
	return revision, err
}

// listRevision lists and returns the revision of the list.
func (w *watcher) listRevision(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	if _, err := w.listAndRecord(ctx, metav1.ListOptions{}); err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return formatRevision(w.lastList.Revision), nil
}

// streamCount returns the number of streams so far.
func (w *watcher) streamCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watch.Streams)
}
