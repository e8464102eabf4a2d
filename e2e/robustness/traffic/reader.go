package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/robustness/history"
)

// pageSize is small so that a list has several pages.
const pageSize = 4

// reader is a client that lists with all kinds of consistency.
type reader struct {
	clock
	name       string
	rand       *rand.Rand
	replicas   []Replica
	namespaces []string
	interval   time.Duration
	// newest is the highest revision that any reader received.
	newest *atomic.Int64
	reads  []history.Read
	err    error
}

// run lists at intervals until ctx ends.
func (r *reader) run(ctx context.Context) {
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := r.listOnce(ctx); err != nil && r.err == nil {
				r.err = fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
}

// listOnce lists once with a random kind of consistency. It returns an error for a response that no
// fault explains.
func (r *reader) listOnce(ctx context.Context) error {
	s := history.Selection{Resource: pickOne(r.rand, resources()), Namespace: pickOne(r.rand, r.namespaces)}
	if r.rand.IntN(3) == 0 {
		s.Color = pickOne(r.rand, colors())
	}
	read := history.Read{Client: r.name, Selection: s, Kind: history.Newest}
	listOptions := metav1.ListOptions{}
	requested := r.newest.Load()
	n := r.rand.IntN(10)
	switch {
	case n < 5 || requested == 0:
	case n < 7:
		read.Kind = history.Paged
		listOptions.Limit = pageSize
	case n < 8:
		read.Kind = history.Any
		listOptions.ResourceVersion = "0"
	case n < 9:
		read.Kind, read.MinRevision, listOptions.ResourceVersion = history.NotOlder, requested, formatRevision(requested)
	default:
		read.Kind, read.MinRevision, listOptions.ResourceVersion = history.Exact, requested, formatRevision(requested)
		listOptions.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), responseTimeout)
	defer cancel()
	read.Start = r.now()
	complete, err := r.readPages(ctx, &read, listOptions)
	read.End = r.now()
	if err != nil || !complete {
		return err
	}
	r.reads = append(r.reads, read)
	for newest := r.newest.Load(); newest < read.Revision && !r.newest.CompareAndSwap(newest, read.Revision); {
		newest = r.newest.Load()
	}
	return nil
}

// readPages reads all pages, each from a random replica. A missing response is not an error.
func (r *reader) readPages(ctx context.Context, read *history.Read, o metav1.ListOptions) (complete bool, err error) {
	for {
		more, err := r.readPage(ctx, pickOne(r.rand, r.replicas), read, &o)
		if isUnexplained(err) {
			return false, fmt.Errorf("%s list of %v: %w", read.Kind, read.Selection, err)
		}
		if err != nil {
			return false, nil
		}
		if !more {
			return true, nil
		}
	}
}

// readPage reads one page of a list and records it. more reports whether another page follows.
func (r *reader) readPage(ctx context.Context, replica Replica, read *history.Read,
	listOptions *metav1.ListOptions) (more bool, err error) {
	list, err := replica.list(ctx, encoding(r.rand.IntN(int(metadataEncoding)+1)), read.Selection, *listOptions)
	if err != nil {
		return false, err
	}
	revision, items, err := versionsOf(read.Selection.Resource, list)
	if err != nil {
		return false, &undecodableResponse{err}
	}
	if listOptions.Continue != "" && revision != read.Revision {
		return false, &undecodableResponse{fmt.Errorf("a page has revision %d, the previous page %d", revision, read.Revision)}
	}
	read.Revision, read.Items = revision, append(read.Items, items...)
	m, err := meta.ListAccessor(list)
	if err != nil {
		return false, &undecodableResponse{err}
	}
	listOptions.Continue = m.GetContinue()
	return listOptions.Continue != "", nil
}

// undecodableResponse is a response that cannot be interpreted.
type undecodableResponse struct{ error }

// isUnexplained reports whether a response cannot be the result of a fault.
func isUnexplained(err error) bool {
	_, wrong := err.(*undecodableResponse)
	return wrong || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) ||
		apierrors.IsForbidden(err)
}
