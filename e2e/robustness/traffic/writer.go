package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"binnacle/e2e/robustness/history"
)

// writeLimit bounds a writer's wait for a response. It is short so that writers continue during
// faults.
const writeLimit = time.Second

// names is the number of names per resource and namespace. It is small so that writers conflict.
const names = 6

// writer is a client that changes objects, one request after another.
type writer struct {
	clock
	id         int
	home       int // replica of most requests, so that one fault does not block all writers
	rand       *rand.Rand
	replicas   []Replica
	namespaces []string
	pace       time.Duration
	written    int
	// known holds the last received versions, which may be outdated.
	known map[key]observedObject
	ops   []history.Operation
}

// observedObject is an object as returned by a read or a write.
type observedObject struct {
	obj   runtime.Object
	value string
}

func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(w.pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.act(ctx)
		}
	}
}

// act changes or reads a random object, based on a known version or after a get.
func (w *writer) act(ctx context.Context) {
	k := key{
		resource: pick(w.rand, resources()), namespace: pick(w.rand, w.namespaces),
		name: fmt.Sprintf("object-%d", w.rand.IntN(names)),
	}
	n := w.rand.IntN(100)
	switch {
	case n < 25:
		w.create(ctx, k)
	case n < 35:
		w.get(ctx, k)
	case n < 50:
		if old, ok := w.known[k]; ok {
			w.update(ctx, k, old)
		}
	case n < 70:
		if now, ok := w.get(ctx, k); ok {
			w.update(ctx, k, now)
		}
	case n < 82:
		w.patch(ctx, k)
	case n < 92:
		w.delete(ctx, k, nil)
	default:
		if now, ok := w.get(ctx, k); ok {
			w.delete(ctx, k, &now)
		}
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// mark returns a mark that is unique over all scenarios.
func (w *writer) mark() string {
	w.written++
	return fmt.Sprintf("%s-%d-%d", w.namespaces[0], w.id, w.written)
}

func (w *writer) create(ctx context.Context, k key) {
	op := history.Operation{Verb: history.Create, Value: w.mark()}
	body := newObject(k, op.Value, pick(w.rand, colors()))
	w.do(ctx, k, op, func(ctx context.Context, c rest.Interface, into runtime.Object) error {
		return object(c.Post(), k).Body(body).Do(ctx).Into(into)
	})
}

func (w *writer) get(ctx context.Context, k key) (observedObject, bool) {
	return w.do(ctx, k, history.Operation{Verb: history.Get}, func(ctx context.Context, c rest.Interface, into runtime.Object) error {
		return object(c.Get(), k).Name(k.name).Do(ctx).Into(into)
	})
}

// update replaces a version conditionally.
func (w *writer) update(ctx context.Context, k key, old observedObject) {
	op := history.Operation{Verb: history.Update, Value: w.mark(), Expected: old.value}
	body := old.obj.DeepCopyObject()
	m, err := meta.Accessor(body)
	if err != nil {
		return
	}
	m.GetAnnotations()[history.MarkAnnotation] = op.Value
	m.GetLabels()[history.Color] = pick(w.rand, colors())
	w.do(ctx, k, op, func(ctx context.Context, c rest.Interface, into runtime.Object) error {
		return object(c.Put(), k).Name(k.name).Body(body).Do(ctx).Into(into)
	})
}

// patch changes the current version.
func (w *writer) patch(ctx context.Context, k key) {
	op := history.Operation{Verb: history.Update, Value: w.mark()}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{history.MarkAnnotation: op.Value},
		"labels":      map[string]string{history.Color: pick(w.rand, colors())},
	}})
	if err != nil {
		return
	}
	w.do(ctx, k, op, func(ctx context.Context, c rest.Interface, into runtime.Object) error {
		return object(c.Patch(types.MergePatchType), k).Name(k.name).Body(body).Do(ctx).Into(into)
	})
}

// delete deletes a version conditionally if old is set, else unconditionally.
func (w *writer) delete(ctx context.Context, k key, old *observedObject) {
	now := int64(0)
	o := &metav1.DeleteOptions{GracePeriodSeconds: &now}
	op := history.Operation{Verb: history.Delete}
	if old != nil {
		m, err := meta.Accessor(old.obj)
		if err != nil {
			return
		}
		revision := m.GetResourceVersion()
		op.Expected = old.value
		o.Preconditions = &metav1.Preconditions{ResourceVersion: &revision}
	}
	w.do(ctx, k, op, func(ctx context.Context, c rest.Interface, _ runtime.Object) error {
		return object(c.Delete(), k).Name(k.name).Body(o).Do(ctx).Error()
	})
}

// do sends a request to a replica and records it.
func (w *writer) do(ctx context.Context, k key, op history.Operation, send func(context.Context, rest.Interface, runtime.Object) error) (observedObject, bool) {
	// A started request is awaited even when writing stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	op.Client, op.Key, op.Replica = w.id, k.String(), w.home
	if w.rand.IntN(4) == 0 {
		op.Replica = w.rand.IntN(len(w.replicas))
	}
	client := w.replicas[op.Replica].typedClient(form(w.rand.IntN(int(metadataOnly))))
	into := emptyObject(k.resource)
	op.Start = w.now()
	err := send(ctx, client, into)
	op.End = w.now()
	now := observedObject{obj: into, value: op.Value}
	op.Outcome = outcomeOf(err)
	if op.Outcome == history.Done && op.Verb != history.Delete {
		v, verr := versionOf(k.resource, into)
		if verr != nil {
			// An undecodable response has an unknown outcome. The error stays in the history.
			op.Outcome = history.Unknown
			err = verr
		} else if op.Revision = v.Revision; op.Verb == history.Get {
			op.Value, now.value = v.Value, v.Value
		}
	}
	if err != nil {
		op.Error = err.Error()
	}
	w.ops = append(w.ops, op)
	if op.Outcome != history.Done || op.Verb == history.Delete {
		return observedObject{}, false
	}
	w.known[k] = now
	return now, true
}

// outcomeOf derives the outcome of a request from its response.
func outcomeOf(err error) history.Outcome {
	switch {
	case err == nil:
		return history.Done
	case apierrors.IsAlreadyExists(err):
		return history.Exists
	case apierrors.IsConflict(err):
		return history.Conflict
	case apierrors.IsNotFound(err):
		return history.NotFound
	}
	return history.Unknown
}
