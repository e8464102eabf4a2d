package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"binnacle/libs/kubeclient"
)

const (
	// minWatchTime is the minimum time after which the server ends a watch. The maximum is twice as
	// long.
	minWatchTime = 5 * time.Minute
	// notServedPause is the interval of checks whether a resource is served.
	notServedPause = 30 * time.Second
)

// ErrNotServed is the error of List and Watch for a resource that the server does not serve, or not
// to this client. It counts as a resource without objects.
var ErrNotServed = errors.New("resource not served")

var (
	errRevisionLost  = errors.New("the position in the watch history is lost")
	errWatchTooShort = errors.New("the watch ended at once")
	errNoResponse    = errors.New("the API server did not respond")
)

// Config describes a resource and how it is followed.
type Config struct {
	// Resource is the name of the resource in logs and errors.
	Resource string
	List     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	// Watch should not retry by itself, because retries would be unnoticed here.
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	Sink  Sink
	// PageSize is the maximum number of objects per page of a list.
	PageSize int64
	// The pause after a failure is about MinRetry at first, and doubles up to MaxRetry.
	MinRetry, MaxRetry time.Duration
	// RelistUnanswered lists the objects again after the server could not be reached, because it
	// may have been restored from a backup since.
	RelistUnanswered bool
	Log              *slog.Logger
	// Level is the level of the log of failures.
	Level slog.Level
}

// Sink receives the objects of a resource. One goroutine calls its methods.
type Sink interface {
	// StartList starts a list. AddListed is called for each object, and then EndList with the
	// revision of the list. Objects that were not listed do not exist. If the list fails, StartList
	// is called again instead of EndList.
	StartList()
	AddListed(metav1.Object)
	EndList(revision string)

	// Set is called for each created or changed object, and Remove for each deleted one.
	Set(metav1.Object)
	Remove(metav1.Object)
	// Advance is called with a revision when all changes up to it were reported.
	Advance(revision string)
}

// Reflector follows a resource.
type Reflector struct {
	Config
	initialListDone chan struct{} // closed after the first complete list
}

// New returns a reflector, which works while Run runs.
func New(c Config) *Reflector { return &Reflector{Config: c, initialListDone: make(chan struct{})} }

// Synced reports whether a complete list was received, or the resource is not served.
func (r *Reflector) Synced() bool {
	select {
	case <-r.initialListDone:
		return true
	default:
		return false
	}
}

// InitialListDone returns a channel that is closed when Synced becomes true.
func (r *Reflector) InitialListDone() <-chan struct{} { return r.initialListDone }

// markSynced makes Synced true, and reports whether it was false.
func (r *Reflector) markSynced() bool {
	if r.Synced() {
		return false
	}
	close(r.initialListDone)
	return true
}

// Run follows the resource until ctx ends, and returns its error. It must not run twice at once.
func (r *Reflector) Run(ctx context.Context) error {
	revision := ""
	listed := false
	pause := r.MinRetry
	for {
		started := time.Now()
		var err error
		if listed {
			revision, err = r.watchFrom(ctx, revision)
		} else {
			revision, err = r.listAll(ctx)
		}
		listed = err == nil || revision != ""
		wait := pause/2 + rand.N(pause) // jitter, so that replicas do not retry together
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			pause = r.MinRetry
			continue
		case errors.Is(err, errRevisionLost):
			r.Log.Log(ctx, min(r.Level, slog.LevelInfo), "relisting", "resource", r.Resource, "reason", err)
		case errors.Is(err, ErrNotServed):
			r.reportEmpty()
			wait = notServedPause
		default:
			r.Log.Log(ctx, r.Level, "list or watch failed", "resource", r.Resource, "error", err)
		}
		if time.Since(started) > r.MaxRetry { // it worked for a while
			pause = r.MinRetry
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, r.MaxRetry)
	}
}

// reportEmpty reports that a resource has no objects because it is not served.
func (r *Reflector) reportEmpty() {
	r.Sink.StartList()
	r.Sink.EndList("")
	if r.markSynced() {
		r.Log.Debug("resource not served; skipping", "resource", r.Resource)
	}
}

// listAll passes all objects to the sink and returns the revision of the list.
func (r *Reflector) listAll(ctx context.Context) (string, error) {
	r.Sink.StartList()
	revision := ""
	err := kubeclient.EachPage(ctx, r.PageSize, r.List, func(list runtime.Object) error {
		page, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("list of %s: %w", r.Resource, err)
		}
		revision = page.GetResourceVersion()
		err = meta.EachListItem(list, func(item runtime.Object) error {
			o, err := meta.Accessor(item)
			if err == nil {
				r.Sink.AddListed(o)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list of %s: %w", r.Resource, err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	r.Sink.EndList(revision)
	r.markSynced()
	return revision, nil
}

// watchFrom reports the changes after a revision to the sink until the watch ends. It returns the
// revision of the last change. If the objects must be listed again, it returns "" and an error, so
// that Run pauses before the list.
func (r *Reflector) watchFrom(ctx context.Context, after string) (string, error) {
	started := time.Now()
	seconds := int64((minWatchTime + rand.N(minWatchTime)).Seconds())
	client, err := r.Watch(ctx, metav1.ListOptions{
		Watch:               true,
		ResourceVersion:     after,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	})
	if err != nil {
		return r.revisionAfterError(after, err)
	}
	defer client.Stop()
	if _, hasResponse := client.(*watch.StreamWatcher); !hasResponse &&
		r.RelistUnanswered { // the connection was closed before a response
		return r.revisionAfterError(after, errNoResponse)
	}
	for {
		select {
		case <-ctx.Done():
			return after, ctx.Err()
		case event, ok := <-client.ResultChan():
			if !ok {
				if time.Since(started) < r.MinRetry {
					return after, errWatchTooShort
				}
				return after, nil
			}
			if event.Type == watch.Error {
				return r.revisionAfterError(after, apierrors.FromObject(event.Object))
			}
			object, err := meta.Accessor(event.Object)
			if err != nil {
				return "", fmt.Errorf("watch of %s: %w", r.Resource, err)
			}
			switch event.Type {
			case watch.Added, watch.Modified:
				r.Sink.Set(object)
			case watch.Deleted:
				r.Sink.Remove(object)
			case watch.Bookmark:
				r.Sink.Advance(object.GetResourceVersion())
			}
			after = object.GetResourceVersion()
		}
	}
}

// revisionAfterError returns the revision at which to resume a watch that failed, and the error. It
// returns "" if the objects must be listed again: the server has compacted the revision, or has not
// reached it, because its store was restored from a backup.
func (r *Reflector) revisionAfterError(after string, err error) (string, error) {
	var apiErr apierrors.APIStatus
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, ErrNotServed) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || r.RelistUnanswered && !errors.As(err, &apiErr) {
		return "", fmt.Errorf("%w: %w", errRevisionLost, err)
	}
	return after, err
}
