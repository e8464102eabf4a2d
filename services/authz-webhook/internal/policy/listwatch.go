package policy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"binnacle/libs/reflector"
)

// pageSize bounds the objects per list page.
const pageSize = 2000

// listWatch sends the requests for a resource in the first of the versions that the server serves.
type listWatch struct {
	resource       string
	optional       bool // the server may serve none
	versions       []rest.Interface
	codec          runtime.ParameterCodec
	currentVersion rest.Interface // of the last list
}

// newReflector returns a reflector that lists and watches the resource into a sink.
func (l *listWatch) newReflector(into objectSink, log *slog.Logger) *reflector.Reflector {
	return reflector.New(reflector.Config{
		Resource: l.resource,
		List:     l.listFirstServed,
		Watch:    l.watchCurrent,
		Sink:     &listCollector{objectSink: into},
		PageSize: pageSize,
		MinRetry: 100 * time.Millisecond,
		MaxRetry: 2 * time.Second,
		// The store of a server that was away may be another one.
		RelistUnanswered: true,
		Log:              log,
		Level:            slog.LevelWarn,
	})
}

// listFirstServed lists the resource in the first version that is served, and records the version
// for the next pages and watches. It returns ErrNotServed if there is none.
func (l *listWatch) listFirstServed(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	if options.Continue != "" {
		return l.newRequest(&options).Do(ctx).Get()
	}
	for _, l.currentVersion = range l.versions {
		list, err = l.newRequest(&options).Do(ctx).Get()
		if !l.isAbsent(err) {
			return list, err
		}
	}
	return nil, fmt.Errorf("%w: %w", reflector.ErrNotServed, err)
}

// watchCurrent watches the resource in the version of the last list.
func (l *listWatch) watchCurrent(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := l.newRequest(&options).MaxRetries(0).Watch(ctx)
	if l.isAbsent(err) {
		return nil, fmt.Errorf("%w: %w", reflector.ErrNotServed, err)
	}
	return w, err
}

// newRequest returns a GET request for the resource in the version of the last list.
func (l *listWatch) newRequest(options *metav1.ListOptions) *rest.Request {
	return l.currentVersion.Get().Resource(l.resource).VersionedParams(options, l.codec)
}

// isAbsent reports whether an error means that a version is not available to this client.
func (l *listWatch) isAbsent(err error) bool {
	return l.optional && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err))
}

// listCollector is a reflector.Sink that passes a list on when it is complete.
type listCollector struct {
	objectSink
	objects []metav1.Object
}

func (c *listCollector) StartList()                { c.objects = nil }
func (c *listCollector) AddListed(o metav1.Object) { c.objects = append(c.objects, o) }

func (c *listCollector) EndList(revision string) {
	c.replace(c.objects, revision)
	c.objects = nil
}

func (c *listCollector) Set(o metav1.Object)     { c.set(o) }
func (c *listCollector) Remove(o metav1.Object)  { c.remove(o) }
func (c *listCollector) Advance(revision string) { c.advance(revision) }
