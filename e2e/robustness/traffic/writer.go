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

// writeTimeout bounds a writer's wait for a response. It is short so that writers continue during
// faults.
const writeTimeout = time.Second

// namesPerNamespace is the number of names per resource and namespace. It is small so that writers
// conflict.
const namesPerNamespace = 6

// writer is a client that changes objects, one request after another.
type writer struct {
	clock
	id          int
	mainReplica int // replica of most requests, so that one fault does not block all writers
	rand        *rand.Rand
	replicas    []Replica
	namespaces  []string
	interval    time.Duration
	written     int
	// known holds the last received versions, which may be outdated.
	known      map[objectKey]observedObject
	operations []history.Operation
}

// observedObject is an object as returned by a read or a write.
type observedObject struct {
	obj   runtime.Object
	value string
}

// run sends requests at intervals until ctx ends.
func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.sendRandomRequest(ctx)
		}
	}
}

// sendRandomRequest changes or reads a random object, based on a known version or after a get.
func (w *writer) sendRandomRequest(ctx context.Context) {
	key := objectKey{
		resource: pickOne(w.rand, resources()), namespace: pickOne(w.rand, w.namespaces),
		name: fmt.Sprintf("object-%d", w.rand.IntN(namesPerNamespace)),
	}
	choice := w.rand.IntN(100)
	switch {
	case choice < 25:
		w.create(ctx, key)
	case choice < 35:
		w.get(ctx, key)
	case choice < 50:
		if old, ok := w.known[key]; ok {
			w.update(ctx, key, old)
		}
	case choice < 70:
		if now, ok := w.get(ctx, key); ok {
			w.update(ctx, key, now)
		}
	case choice < 82:
		w.patch(ctx, key)
	case choice < 92:
		w.delete(ctx, key, nil)
	default:
		if now, ok := w.get(ctx, key); ok {
			w.delete(ctx, key, &now)
		}
	}
}

// pickOne returns a random element.
func pickOne[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// newMark returns a mark that is unique over all scenarios.
func (w *writer) newMark() string {
	w.written++
	return fmt.Sprintf("%s-%d-%d", w.namespaces[0], w.id, w.written)
}

// create creates an object.
func (w *writer) create(ctx context.Context, key objectKey) {
	op := history.Operation{Verb: history.Create, Value: w.newMark()}
	body := newObject(key, op.Value, pickOne(w.rand, colors()))
	w.send(ctx, key, op, func(ctx context.Context, c rest.Interface, into runtime.Object) error {
		return objectRequest(c.Post(), key).Body(body).Do(ctx).Into(into)
	})
}

// get reads an object. It returns false if it got none.
func (w *writer) get(ctx context.Context, key objectKey) (observedObject, bool) {
	return w.send(ctx, key, history.Operation{Verb: history.Get},
		func(ctx context.Context, c rest.Interface, into runtime.Object) error {
			return objectRequest(c.Get(), key).Name(key.name).Do(ctx).Into(into)
		})
}

// update replaces an object if it still has the version old.
func (w *writer) update(ctx context.Context, key objectKey, old observedObject) {
	op := history.Operation{Verb: history.Update, Value: w.newMark(), Expected: old.value}
	body := old.obj.DeepCopyObject()
	object, err := meta.Accessor(body)
	if err != nil {
		return
	}
	object.GetAnnotations()[history.MarkAnnotation] = op.Value
	object.GetLabels()[history.Color] = pickOne(w.rand, colors())
	w.send(ctx, key, op, func(ctx context.Context, c rest.Interface, into runtime.Object) error {
		return objectRequest(c.Put(), key).Name(key.name).Body(body).Do(ctx).Into(into)
	})
}

// patch changes the current version of an object, whatever it is.
func (w *writer) patch(ctx context.Context, key objectKey) {
	op := history.Operation{Verb: history.Update, Value: w.newMark()}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{history.MarkAnnotation: op.Value},
		"labels":      map[string]string{history.Color: pickOne(w.rand, colors())},
	}})
	if err != nil {
		return
	}
	w.send(ctx, key, op, func(ctx context.Context, c rest.Interface, into runtime.Object) error {
		return objectRequest(c.Patch(types.MergePatchType), key).Name(key.name).Body(body).Do(ctx).Into(into)
	})
}

// delete deletes an object. If old is not nil, the object must still have that version.
func (w *writer) delete(ctx context.Context, key objectKey, old *observedObject) {
	now := int64(0)
	deleteOptions := &metav1.DeleteOptions{GracePeriodSeconds: &now}
	op := history.Operation{Verb: history.Delete}
	if old != nil {
		m, err := meta.Accessor(old.obj)
		if err != nil {
			return
		}
		revision := m.GetResourceVersion()
		op.Expected = old.value
		deleteOptions.Preconditions = &metav1.Preconditions{ResourceVersion: &revision}
	}
	w.send(ctx, key, op, func(ctx context.Context, c rest.Interface, _ runtime.Object) error {
		return objectRequest(c.Delete(), key).Name(key.name).Body(deleteOptions).Do(ctx).Error()
	})
}

// send calls request with a client of a replica and records the result as op. It returns the object
// in the response, or false if there is none.
func (w *writer) send(ctx context.Context, key objectKey, operation history.Operation,
	request func(context.Context, rest.Interface, runtime.Object) error) (observedObject, bool) {
	// A started request is awaited even when writing stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	operation.Client, operation.Key, operation.Replica = w.id, key.String(), w.mainReplica
	if w.rand.IntN(4) == 0 {
		operation.Replica = w.rand.IntN(len(w.replicas))
	}
	client := w.replicas[operation.Replica].typedClient(encoding(w.rand.IntN(int(metadataEncoding))))
	result := emptyObject(key.resource)
	operation.Start = w.now()
	err := request(ctx, client, result)
	operation.End = w.now()
	now := observedObject{obj: result, value: operation.Value}
	operation.Outcome = outcomeOf(err)
	if operation.Outcome == history.Done && operation.Verb != history.Delete {
		version, verr := versionOf(key.resource, result)
		if verr != nil {
			// An undecodable response has an unknown outcome. The error stays in the history.
			operation.Outcome = history.Unknown
			err = verr
		} else if operation.Revision = version.Revision; operation.Verb == history.Get {
			operation.Value, now.value = version.Value, version.Value
		}
	}
	if err != nil {
		operation.Error = err.Error()
	}
	w.operations = append(w.operations, operation)
	if operation.Outcome != history.Done || operation.Verb == history.Delete {
		return observedObject{}, false
	}
	w.known[key] = now
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
