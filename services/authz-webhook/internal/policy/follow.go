package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
	// pageSize bounds the objects per list page.
	pageSize = 2000
	// watchTime is the minimum time after which a watch ends by itself; the maximum is twice as
	// long.
	watchTime = 5 * time.Minute
	// absentPause is the interval of checks whether an absent resource is served.
	absentPause = 30 * time.Second
)

// errLost means that the history after the position is not available any more.
var errLost = errors.New("the place in history is lost")

// errShort marks a watch that must not be retried at once.
var errShort = errors.New("the watch ended at once")

// errUnanswered means that the server accepts connections and closes them.
var errUnanswered = errors.New("the API server did not answer")

// errAbsent means that a resource is not served.
var errAbsent = errors.New("it is not served")

// follow follows one resource.
type follow struct {
	resource string
	client   rest.Interface
	// versions holds the clients for the versions of an optional resource, in their order; client
	// is the current one. Other resources have only client.
	versions []rest.Interface
	into     sink
	log      *slog.Logger
	synced   atomic.Bool
}

func newFollow(resource string, client rest.Interface, into sink, log *slog.Logger) *follow {
	return &follow{resource: resource, client: client, into: into, log: log}
}

// isAbsent reports whether an error means that a version is not available to this client.
func (f *follow) isAbsent(err error) bool {
	return len(f.versions) > 0 && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err))
}

func (f *follow) run(ctx context.Context) error {
	revision := ""
	pause := firstPause
	for {
		begun := time.Now()
		var err error
		if revision == "" {
			revision, err = f.list(ctx)
		} else {
			revision, err = f.watch(ctx, revision)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			pause = firstPause
			continue
		}
		if errors.Is(err, errAbsent) {
			if err := f.rest(ctx); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, errLost) {
			f.log.Info("relisting", "resource", f.resource, "reason", err)
		} else {
			f.log.Warn("list or watch failed", "resource", f.resource, "error", err)
		}
		if time.Since(begun) > lastPause { // it worked for a while
			pause = firstPause
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // jitter, so that replicas do not retry together
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, lastPause)
	}
}

// list loads the current state and returns its revision.
func (f *follow) list(ctx context.Context) (string, error) {
	for _, f.client = range f.versions {
		revision, err := f.listed(ctx)
		if !f.isAbsent(err) {
			return revision, err
		}
	}
	if len(f.versions) > 0 {
		return "", errAbsent
	}
	return f.listed(ctx)
}

// rest waits while a resource is not served. Its state is empty.
func (f *follow) rest(ctx context.Context) error {
	f.into.replace(nil, "")
	if !f.synced.Swap(true) {
		f.log.Debug("resource not served; skipping", "resource", f.resource)
	}
	select {
	case <-time.After(absentPause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listed lists the resource in one version.
func (f *follow) listed(ctx context.Context) (string, error) {
	var objs []metav1.Object
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := f.client.Get().Resource(f.resource).VersionedParams(&options, scheme.ParameterCodec).Do(ctx).Get()
		if err != nil {
			return "", err
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			obj, err := meta.Accessor(o)
			objs = append(objs, obj)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("list of %s: %w", f.resource, err)
		}
		page, err := meta.ListAccessor(list)
		if err != nil {
			return "", fmt.Errorf("list of %s: %w", f.resource, err)
		}
		if options.Continue = page.GetContinue(); options.Continue != "" {
			continue
		}
		f.into.replace(objs, page.GetResourceVersion())
		f.synced.Store(true)
		return page.GetResourceVersion(), nil
	}
}

// watch applies changes after a revision, and returns the revision that it reached, or "" if its
// position is lost.
func (f *follow) watch(ctx context.Context, after string) (string, error) {
	begun := time.Now()
	seconds := int64((watchTime + rand.N(watchTime)).Seconds())
	options := metav1.ListOptions{Watch: true, ResourceVersion: after, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	// Retries inside the client would be unnoticed here.
	w, err := f.client.Get().MaxRetries(0).Resource(f.resource).VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return f.place(after, err)
	}
	defer w.Stop()
	if _, answered := w.(*watch.StreamWatcher); !answered { // the connection was closed before a response
		return f.place(after, errUnanswered)
	}
	for {
		select {
		case <-ctx.Done():
			return after, ctx.Err()
		case ev, ok := <-w.ResultChan():
			if !ok {
				if time.Since(begun) < firstPause {
					return after, errShort
				}
				return after, nil
			}
			if ev.Type == watch.Error {
				return f.place(after, apierrors.FromObject(ev.Object))
			}
			obj, err := meta.Accessor(ev.Object)
			if err != nil {
				return "", fmt.Errorf("watch of %s: %w", f.resource, err)
			}
			switch ev.Type {
			case watch.Added, watch.Modified:
				f.into.set(obj)
			case watch.Deleted:
				f.into.remove(obj)
			case watch.Bookmark:
				f.into.advance(obj.GetResourceVersion())
			}
			after = obj.GetResourceVersion()
		}
	}
}

// place returns the position, unless the error means that it is lost. A server that has not reached
// the position may never do so: its store's revision went backwards. A server that was unreachable
// may have restarted with such a store, and may be past the position by now.
func (f *follow) place(after string, err error) (string, error) {
	var answer apierrors.APIStatus
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || f.isAbsent(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || !errors.As(err, &answer) {
		return "", fmt.Errorf("%w: %w", errLost, err)
	}
	return after, err
}
