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
	// pageSize bounds the objects of one answer to a list.
	pageSize = 2000
	// A watch ends by itself after watchTime, up to twice as long.
	watchTime = 5 * time.Minute
	// absentPause is how often it is looked whether a resource has come to be.
	absentPause = 30 * time.Second
)

// errLost tells that what happened cannot be told any more.
var errLost = errors.New("the place in history is lost")

// errShort tells of a watch that is not to be tried again at once.
var errShort = errors.New("the watch ended at once")

// errUnanswered tells of a server that takes connections and ends them.
var errUnanswered = errors.New("the API server did not answer")

// errAbsent tells of a resource that is not served.
var errAbsent = errors.New("it is not served")

// follow follows one resource.
type follow struct {
	resource string
	client   rest.Interface
	// versions of a resource that need not be served, in their order; client is
	// the one in use. Of other resources there is the client alone.
	versions []rest.Interface
	into     sink
	log      *slog.Logger
	synced   atomic.Bool
}

func newFollow(resource string, client rest.Interface, into sink, log *slog.Logger) *follow {
	return &follow{resource: resource, client: client, into: into, log: log}
}

// isAbsent tells whether an error means that a version is not there for us.
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
			f.log.Info("listing anew", "resource", f.resource, "reason", err)
		} else {
			f.log.Warn("following at the API server", "resource", f.resource, "error", err)
		}
		if time.Since(begun) > lastPause { // it worked for a while
			pause = firstPause
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // replicas do not come together
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, lastPause)
	}
}

// list takes the present state and returns its revision.
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

// rest waits while a resource is not there: nothing of it is all that there is.
func (f *follow) rest(ctx context.Context) error {
	f.into.replace(nil, "")
	if !f.synced.Swap(true) {
		f.log.Info("not served, so nothing hangs on it", "resource", f.resource)
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

// watch tells changes after a revision, and returns how far it came; nothing
// when its place is lost.
func (f *follow) watch(ctx context.Context, after string) (string, error) {
	begun := time.Now()
	seconds := int64((watchTime + rand.N(watchTime)).Seconds())
	options := metav1.ListOptions{Watch: true, ResourceVersion: after, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	// What the client tried again by itself, nobody would know of.
	w, err := f.client.Get().MaxRetries(0).Resource(f.resource).VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return f.place(after, err)
	}
	defer w.Stop()
	if _, answered := w.(*watch.StreamWatcher); !answered { // the connection was cut before
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

// place keeps the place unless the error says that it is lost. A server that does not
// know the place yet may never come to it: its store went back. One that was not there
// at all may have come back on such a store, and may be past the place by now.
func (f *follow) place(after string, err error) (string, error) {
	var answer apierrors.APIStatus
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || f.isAbsent(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || !errors.As(err, &answer) {
		return "", fmt.Errorf("%w: %w", errLost, err)
	}
	return after, err
}
