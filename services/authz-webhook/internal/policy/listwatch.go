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
	resource string
	optional bool // the server may serve none
	versions []rest.Interface
	codec    runtime.ParameterCodec
	current  rest.Interface // of the last list
}

func (f *listWatch) reflector(into sink, log *slog.Logger) *reflector.Reflector {
	return reflector.New(reflector.Config{
		Resource: f.resource, List: f.list, Watch: f.watch, Sink: &listCollector{sink: into}, PageSize: pageSize,
		MinRetry: 100 * time.Millisecond, MaxRetry: 2 * time.Second, RelistUnanswered: true, Log: log, Level: slog.LevelWarn,
	})
}

func (f *listWatch) list(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
	if options.Continue != "" {
		return f.request(&options).Do(ctx).Get()
	}
	for _, f.current = range f.versions {
		list, err = f.request(&options).Do(ctx).Get()
		if !f.isAbsent(err) {
			return list, err
		}
	}
	return nil, fmt.Errorf("%w: %w", reflector.ErrNotServed, err)
}

func (f *listWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := f.request(&options).MaxRetries(0).Watch(ctx)
	if f.isAbsent(err) {
		return nil, fmt.Errorf("%w: %w", reflector.ErrNotServed, err)
	}
	return w, err
}

func (f *listWatch) request(options *metav1.ListOptions) *rest.Request {
	return f.current.Get().Resource(f.resource).VersionedParams(options, f.codec)
}

// isAbsent reports whether an error means that a version is not available to this client.
func (f *listWatch) isAbsent(err error) bool {
	return f.optional && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err))
}

// listCollector is a reflector.Sink that passes a list on when it is complete.
type listCollector struct {
	sink
	objects []metav1.Object
}

func (w *listCollector) BeginList()             { w.objects = nil }
func (w *listCollector) Listed(o metav1.Object) { w.objects = append(w.objects, o) }

func (w *listCollector) EndList(revision string) {
	w.replace(w.objects, revision)
	w.objects = nil
}

func (w *listCollector) Set(o metav1.Object)     { w.set(o) }
func (w *listCollector) Remove(o metav1.Object)  { w.remove(o) }
func (w *listCollector) Advance(revision string) { w.advance(revision) }
