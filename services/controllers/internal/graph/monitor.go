package graph

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"binnacle/services/controllers/internal/resources"
)

const (
	// pageSize is how many objects are in memory at a time while listing.
	pageSize = 500
	// minWatch is the shortest time after which the server ends a watch. The longest is twice that.
	minWatch = 5 * time.Minute
	// Delay after a failure. It doubles from firstRetry to lastRetry.
	firstRetry = 800 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// monitor passes the objects of one resource to the graph.
type monitor struct {
	graph    *Graph
	client   metadata.Getter
	resource *resources.Resource
	log      *slog.Logger
	cancel   context.CancelFunc
	synced   atomic.Bool // after the first complete list
}

// run lists and watches until ctx ends.
func (m *monitor) run(ctx context.Context) {
	pause := firstRetry
	version := ""
	for ctx.Err() == nil {
		var err error
		if version == "" {
			if version, err = m.list(ctx); err == nil {
				m.synced.Store(true)
			}
		} else {
			version, err = m.follow(ctx, version)
		}
		if err == nil {
			pause = firstRetry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		m.log.Debug("following a resource failed, retrying", "resource", m.resource.GroupVersionResource.String(), "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause + rand.N(pause)):
		}
		pause = min(2*pause, lastRetry)
	}
}

// list observes all objects, page by page, and sweeps those that are gone. It returns the revision
// of the list.
func (m *monitor) list(ctx context.Context) (version string, err error) {
	epoch := m.graph.BeginList()
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := m.client.List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			m.graph.Observe(m.resource, &page.Items[i])
		}
		version = page.ResourceVersion
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	m.graph.Sweep(m.resource, epoch)
	return version, nil
}

// follow watches from a revision until the watch ends. It returns the revision to continue at, or
// "" if the objects must be listed again. An unavailable revision is an error too, so that a server
// that rejects every watch does not cause one list after another without a pause.
func (m *monitor) follow(ctx context.Context, version string) (string, error) {
	seconds := int64((minWatch + rand.N(minWatch)).Seconds())
	w, err := m.client.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		if gone(err) {
			return "", err
		}
		return version, err
	}
	defer w.Stop()
	begun := time.Now()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			if gone(err) {
				return "", err
			}
			return version, err
		}
		o, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return "", fmt.Errorf("unexpected object %T in a watch", e.Object)
		}
		version = o.ResourceVersion
		switch e.Type {
		case watch.Added, watch.Modified:
			m.graph.Observe(m.resource, o)
		case watch.Deleted:
			m.graph.Remove(m.resource, o)
		}
	}
	if time.Since(begun) < time.Second {
		return version, errors.New("the watch ended at once")
	}
	return version, nil
}

// gone reports whether a revision is no longer available.
func gone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
