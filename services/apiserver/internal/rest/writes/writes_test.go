package writes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// writeCase is a write of the config map "c" in "ns" and its expected effects.
type writeCase struct {
	name string
	// existing is stored before and known to the cache. since is stored after the cache has seen
	// existing.
	existing, since *corev1.ConfigMap
	do              func(*fixture, *writes.Request) (writes.Result, error)
	dryRun          bool
	prepare         func(*fixture)
	// before runs between the read and swap n, counted from 1.
	before func(w *fixture, n int, key string) (done bool, err error)

	code    int // of the error; 0: success
	message string
	want    string // summary of the stored object; "gone" if there is none
	swaps   int    // attempted swaps
	reads   int    // reads of the store, bypassing the cache
	dropped int    // dropped claims; a successful write keeps one
	unknown bool   // outcome unknown: the last claim is neither kept nor dropped
}

func create(c *corev1.ConfigMap) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Object = c
		r.Name = ""
		r.Options = &metav1.CreateOptions{}
		return w.writer.Create(context.Background(), r)
	}
}

func update(c *corev1.ConfigMap) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Object = c
		r.Options = &metav1.UpdateOptions{}
		return w.writer.Update(context.Background(), r)
	}
}

func applyPatch(typ types.PatchType, text string) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		p, err := patch.Decode(typ, []byte(text), true)
		if err != nil {
			return writes.Result{}, err
		}
		r.Patch = p
		r.Options = &metav1.PatchOptions{}
		return w.writer.Patch(context.Background(), r)
	}
}

func merge(text string) func(*fixture, *writes.Request) (writes.Result, error) {
	return applyPatch(types.MergePatchType, text)
}

func applied(data string, force bool) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Force = force
		return applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":`+data+`}`)(w, r)
	}
}

func remove(o metav1.DeleteOptions) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Options = &o
		return w.writer.Delete(context.Background(), r)
	}
}

func precondition(uid, version string) metav1.DeleteOptions {
	p := &metav1.Preconditions{}
	if uid != "" {
		p.UID = ptr.To(types.UID(uid))
	}
	if version != "" {
		p.ResourceVersion = &version
	}
	return metav1.DeleteOptions{Preconditions: p}
}

// Modifiers of config maps.
func at(c *corev1.ConfigMap, version string) *corev1.ConfigMap {
	c.ResourceVersion = version
	return c
}

func withUID(c *corev1.ConfigMap, uid string) *corev1.ConfigMap {
	c.UID = types.UID(uid)
	return c
}

func withFinalizers(c *corev1.ConfigMap, finalizers ...string) *corev1.ConfigMap {
	c.Finalizers = finalizers
	return c
}

func deleting(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.DeletionTimestamp = &metav1.Time{Time: now}
	c.DeletionGracePeriodSeconds = ptr.To(int64(0))
	return c
}

func generated(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.Name = ""
	c.GenerateName = "c-"
	return c
}

// Faults.
func once(fault func(w *fixture, key string)) func(*fixture, int, string) (bool, error) {
	return func(w *fixture, n int, key string) (bool, error) {
		if n == 1 {
			fault(w, key)
		}
		return false, nil
	}
}

func always(fault func(w *fixture, n int, key string)) func(*fixture, int, string) (bool, error) {
	return func(w *fixture, n int, key string) (bool, error) {
		fault(w, n, key)
		return false, nil
	}
}

func overwrite(c *corev1.ConfigMap) func(*fixture, string) {
	return func(w *fixture, _ string) { w.put(w.kind("configmaps"), c) }
}

func deleteObject(w *fixture, _ string) { w.remove(w.kind("configmaps"), "c") }

func takeName(w *fixture, key string) {
	c := config()
	c.Name = key[strings.LastIndexByte(key, '/')+1:]
	w.put(w.kind("configmaps"), c)
}

func failWith(err error, done bool) func(*fixture, int, string) (bool, error) {
	return func(*fixture, int, string) (bool, error) { return done, err }
}

func rejectAll(w *fixture) {
	w.admit = func(*admission.Request) error {
		return status.Error(http.StatusForbidden, metav1.StatusReasonForbidden, "no", nil)
	}
}

// The first assigned revision is 2. An existing object has it, the one written since has 3.
func writeCases() []writeCase {
	unavailable := fmt.Errorf("no response: %w", storage.ErrUnavailable)
	return []writeCase{
		{name: "create", do: create(wanted("a", "1")), want: "a=1", swaps: 1},
		{
			name:     "create existing object",
			existing: config("a", "0"),
			do:       create(wanted("a", "1")),
			code:     409,
			message:  "already exists",
			want:     "a=0",
			swaps:    1,
			dropped:  1,
			reads:    1,
		},
		{
			name:     "create terminating object",
			existing: deleting(withFinalizers(config(), "a/b")),
			do:       create(wanted()),
			code:     409,
			message:  `object is being deleted: configmaps "c" already exists`,
			want:     "marked a/b",
			swaps:    1,
			dropped:  1,
			reads:    1,
		},
		{
			name:    "create while another client creates it",
			do:      create(wanted("a", "1")),
			before:  once(overwrite(config("a", "0"))),
			code:    409,
			message: "already exists",
			want:    "a=0",
			swaps:   1,
			dropped: 1,
			reads:   1,
		},
		{
			name:    "create with a version",
			do:      create(at(wanted(), "5")),
			code:    400,
			message: "resourceVersion should not be set on objects to be created",
			want:    "gone",
			dropped: 1,
		},
		{
			name:     "create existing object with a version",
			existing: config("a", "0"),
			do:       create(at(wanted(), "5")),
			code:     400,
			want:     "a=0",
			dropped:  1,
		},
		{
			name:    "create rejected by admission with a version",
			prepare: rejectAll,
			do:      create(at(wanted(), "5")),
			code:    403,
			want:    "gone",
			dropped: 1,
		},
		{name: "create with the version 0", do: create(at(wanted("a", "1"), "0")), want: "a=1", swaps: 1},
		{name: "create with a version that is not a number", do: create(at(wanted("a", "1"), "x")), want: "a=1", swaps: 1},
		{
			name: "create with another namespace",
			do:   create(func() *corev1.ConfigMap { c := wanted(); c.Namespace = "other"; return c }()),
			code: 400,
			want: "gone",
		},
		{
			name: "create invalid object",
			do:   create(func() *corev1.ConfigMap { c := wanted(); c.Name = "C"; return c }()),
			code: 422,
			want: "gone",
		},
		{
			name:    "create with a generated name that exists",
			do:      create(generated(wanted())),
			before:  once(takeName),
			want:    "gone",
			swaps:   2,
			dropped: 1,
		},
		{
			name:    "create with generated names that all exist",
			do:      create(generated(wanted())),
			before:  always(func(w *fixture, _ int, key string) { takeName(w, key) }),
			code:    409,
			message: "was not able to generate a unique name",
			want:    "gone",
			swaps:   8,
			dropped: 8,
			reads:   1,
		},
		{name: "create in a dry run", dryRun: true, do: create(wanted()), want: "gone", reads: 1, dropped: 1},
		{
			name:     "create existing object in a dry run",
			dryRun:   true,
			existing: config("a", "0"),
			do:       create(wanted()),
			code:     409,
			want:     "a=0",
			dropped:  1,
			reads:    2,
		},
		{name: "create rejected by admission", prepare: rejectAll, do: create(wanted()), code: 403, want: "gone", dropped: 1},
		{
			name:    "create rejected by mutation",
			prepare: func(w *fixture) { w.mutate = func(*admission.Request) error { return errors.New("no") } },
			do:      create(wanted()),
			code:    500,
			want:    "gone",
		},
		{
			name:    "create too large",
			do:      create(wanted("a", "1")),
			before:  failWith(storage.ErrTooLarge, false),
			code:    413,
			want:    "gone",
			swaps:   2,
			dropped: 1,
		},
		{
			name: "create too large with managed fields",
			do:   create(wanted("a", "1")),
			before: func(_ *fixture, n int, _ string) (bool, error) {
				if n == 1 {
					return false, storage.ErrTooLarge
				}
				return false, nil
			},
			want:  "a=1",
			swaps: 2,
		},
		{
			name:    "create without response, applied",
			do:      create(wanted("a", "1")),
			before:  failWith(unavailable, true),
			code:    500,
			want:    "a=1",
			swaps:   1,
			unknown: true,
		},
		{
			name:    "create without response, not applied",
			do:      create(wanted("a", "1")),
			before:  failWith(context.DeadlineExceeded, false),
			code:    504,
			want:    "gone",
			swaps:   1,
			unknown: true,
		},

		{name: "update", existing: config("a", "0"), do: update(wanted("b", "1")), want: "b=1", swaps: 1},
		{name: "update missing object", do: update(wanted("b", "1")), code: 404, want: "gone", reads: 1},
		{
			name:     "update deleted object that the cache still has",
			existing: config(),
			prepare:  func(w *fixture) { deleteObject(w, "") },
			do:       update(wanted("b", "1")),
			code:     404,
			want:     "gone",
			swaps:    1,
			dropped:  1,
		},
		{
			name:    "update an object that was deleted",
			do:      update(withUID(wanted("b", "1"), "old")),
			code:    409,
			want:    "gone",
			reads:   1,
			message: "StorageError: invalid object, Code: 4, Key: /registry/configmaps/ns/c, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: old, UID in object meta: ",
		},
		{
			name:    "update an object that was deleted in a dry run",
			dryRun:  true,
			do:      update(withUID(wanted("b", "1"), "old")),
			code:    409,
			message: "Key: /configmaps/ns/c,",
			want:    "gone",
			reads:   1,
		},
		{
			name:     "update with UID while another client deletes",
			existing: config(),
			do:       update(withUID(wanted("b", "1"), "uid")),
			before:   once(deleteObject),
			code:     409,
			message:  "UID in precondition: uid",
			want:     "gone",
			swaps:    1,
			dropped:  1,
		},
		{
			name:     "update another name",
			existing: config(),
			do:       update(func() *corev1.ConfigMap { c := wanted(); c.Name = "d"; return c }()),
			code:     400,
			want:     "",
		},
		{name: "update at its version", existing: config("a", "0"), do: update(at(wanted("b", "1"), "2")), want: "b=1", swaps: 1},
		{
			name:     "update at a version that the cache has not seen",
			existing: config("a", "0"),
			since:    config("a", "1"),
			do:       update(at(wanted("b", "1"), "3")),
			want:     "b=1",
			swaps:    1,
			reads:    1,
		},
		{
			name:     "update at an old version that the cache still has",
			existing: config("a", "0"),
			since:    config("a", "1"),
			do:       update(at(wanted("b", "1"), "2")),
			code:     409,
			message:  "the object has been modified",
			want:     "a=1",
			swaps:    1,
			dropped:  1,
		},
		{
			name:     "update at an old version",
			existing: config("a", "0"),
			do:       update(at(wanted("b", "1"), "1")),
			code:     409,
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "update at an invalid version",
			existing: config("a", "0"),
			do:       update(at(wanted("b", "1"), "x")),
			code:     422,
			message:  "metadata.resourceVersion",
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "update of a cached state that is not the newest",
			existing: config("a", "0"),
			since:    config("a", "1"),
			do:       update(wanted("b", "1")),
			want:     "b=1",
			swaps:    2,
			dropped:  1,
		},
		{
			name:     "update of another object",
			existing: config("a", "0"),
			do:       update(withUID(wanted("b", "1"), "other")),
			code:     409,
			message:  "UID in precondition: other",
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "update while another client writes",
			existing: config("a", "0"),
			do:       update(wanted("b", "1")),
			before:   once(overwrite(config("a", "1"))),
			want:     "b=1",
			swaps:    2,
			dropped:  1,
		},
		{
			name:     "update at a version while another client writes",
			existing: config("a", "0"),
			do:       update(at(wanted("b", "1"), "2")),
			before:   once(overwrite(config("a", "1"))),
			code:     409,
			message:  "the object has been modified",
			want:     "a=1",
			swaps:    1,
			dropped:  1,
		},
		{
			name:     "update while another client always writes",
			existing: config("a", "0"),
			do:       update(wanted("b", "1")),
			before:   always(func(w *fixture, n int, _ string) { overwrite(config("a", fmt.Sprint(n)))(w, "") }),
			code:     409,
			want:     "a=101",
			swaps:    101,
			dropped:  101,
		},
		{
			name:     "update while another client deletes",
			existing: config(),
			do:       update(wanted("b", "1")),
			before:   once(deleteObject),
			code:     404,
			want:     "gone",
			swaps:    1,
			dropped:  1,
		},
		{
			name:     "update while another client replaces the object",
			existing: config(),
			do:       update(withUID(wanted("b", "1"), "uid")),
			before: once(func(w *fixture, key string) {
				deleteObject(w, key)
				overwrite(withUID(config("a", "2"), "second"))(w, key)
			}),
			code:    409,
			message: "UID in object meta: second",
			want:    "a=2",
			swaps:   1,
			dropped: 1,
		},
		{name: "update that changes nothing", existing: config("a", "0"), do: merge(`{}`), want: "a=0", reads: 1, dropped: 1},
		{
			name:     "update that changes nothing in a state that is not the newest",
			existing: config("a", "0"),
			since:    config("a", "1"),
			do:       merge(`{"data":{"a":"0"}}`),
			want:     "a=0",
			reads:    1,
			swaps:    1,
			dropped:  1,
		},
		{
			name:     "update in a dry run",
			dryRun:   true,
			existing: config("a", "0"),
			do:       update(wanted("b", "1")),
			want:     "a=0",
			reads:    1,
			dropped:  1,
		},
		{
			name:     "update rejected by admission",
			existing: config("a", "0"),
			prepare:  rejectAll,
			do:       update(wanted("b", "1")),
			code:     403,
			want:     "a=0",
			reads:    1,
			dropped:  1,
		},
		{
			name:     "update whose old state admission rejects",
			existing: config("a", "0"),
			since:    config("a", "1"),
			prepare: func(w *fixture) {
				w.admit = func(r *admission.Request) error {
					if r.OldObject.(*corev1.ConfigMap).Data["a"] == "0" {
						return errors.New("rejected because of the old object")
					}
					return nil
				}
			},
			do:      update(wanted("b", "1")),
			want:    "b=1",
			swaps:   1,
			reads:   1,
			dropped: 1,
		},
		{
			name:     "update without response, applied",
			existing: config("a", "0"),
			do:       update(wanted("b", "1")),
			before:   failWith(unavailable, true),
			code:     500,
			want:     "b=1",
			swaps:    1,
			unknown:  true,
		},
		{
			name:     "update without response, not applied",
			existing: config("a", "0"),
			do:       update(wanted("b", "1")),
			before:   failWith(unavailable, false),
			code:     500,
			want:     "a=0",
			swaps:    1,
			unknown:  true,
		},
		{
			name:     "the last finalizer is removed",
			existing: deleting(withFinalizers(config(), "a/b")),
			do:       update(withFinalizers(wanted())),
			want:     "gone",
			swaps:    1,
		},
		{
			name:     "one of several finalizers is removed",
			existing: deleting(withFinalizers(config(), "a/b", "a/c")),
			do:       update(withFinalizers(wanted(), "a/c")),
			want:     "marked a/c",
			swaps:    1,
		},
		{
			name:     "a finalizer is added after deletion",
			existing: deleting(withFinalizers(config(), "a/b")),
			do:       update(withFinalizers(wanted(), "a/b", "a/c")),
			code:     422,
			message:  "metadata.finalizers",
			want:     "marked a/b",
			reads:    1,
		},
		{
			name:     "the last finalizer of an object that is not deleted is removed",
			existing: withFinalizers(config(), "a/b"),
			do:       update(withFinalizers(wanted())),
			want:     "",
			swaps:    1,
		},
		{
			name:     "the last finalizer is removed while another client deletes",
			existing: withFinalizers(config(), "a/b"),
			do:       merge(`{"metadata":{"finalizers":null}}`),
			before:   once(overwrite(deleting(withFinalizers(config(), "a/b")))),
			want:     "gone",
			swaps:    2,
			dropped:  1,
		},
		{
			name:     "the last finalizer is removed while another is added",
			existing: deleting(withFinalizers(config(), "a/b")),
			do: applyPatch(types.JSONPatchType,
				`[{"op":"test","path":"/metadata/finalizers/0","value":"a/b"},{"op":"remove","path":"/metadata/finalizers/0"}]`),
			before:  once(overwrite(deleting(withFinalizers(config(), "a/b", "a/c")))),
			want:    "marked a/c",
			swaps:   2,
			dropped: 1,
		},

		{name: "patch", existing: config("a", "0"), do: merge(`{"data":{"b":"1"}}`), want: "a=0 b=1", swaps: 1},
		{name: "patch missing object", do: merge(`{"data":{"b":"1"}}`), code: 404, want: "gone", reads: 1},
		{
			name:     "patch while another client writes",
			existing: config("a", "0"),
			do:       merge(`{"data":{"b":"1"}}`),
			before:   once(overwrite(config("a", "5"))),
			want:     "a=5 b=1",
			swaps:    2,
			dropped:  1,
		},
		{
			name:     "patch at a version while another client writes",
			existing: config("a", "0"),
			do:       merge(`{"metadata":{"resourceVersion":"2"},"data":{"b":"1"}}`),
			before:   once(overwrite(config("a", "5"))),
			code:     409,
			want:     "a=5",
			swaps:    1,
			dropped:  1,
		},
		{
			name:     "patch whose test fails on a state that is not the newest",
			existing: config("a", "0"),
			since:    config("a", "1"),
			do: applyPatch(types.JSONPatchType,
				`[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"1"}]`),
			want:  "a=1 b=1",
			swaps: 1,
			reads: 1,
		},
		{
			name:     "patch whose test fails",
			existing: config("a", "0"),
			do:       applyPatch(types.JSONPatchType, `[{"op":"test","path":"/data/a","value":"1"}]`),
			code:     422,
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "patch of the name",
			existing: config("a", "0"),
			do:       merge(`{"metadata":{"name":"d"}}`),
			code:     400,
			message:  "does not match the name on the URL",
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "patch in a dry run",
			dryRun:   true,
			existing: config("a", "0"),
			do:       merge(`{"data":{"b":"1"}}`),
			want:     "a=0",
			reads:    1,
			dropped:  1,
		},
		{
			name:     "patch without response",
			existing: config("a", "0"),
			do:       merge(`{"data":{"b":"1"}}`),
			before:   failWith(unavailable, true),
			code:     500,
			want:     "a=0 b=1",
			swaps:    1,
			unknown:  true,
		},

		{name: "apply missing object", do: applied(`{"a":"1"}`, false), want: "a=1", reads: 1, swaps: 1},
		{
			name:    "apply missing object without permission to create",
			prepare: func(w *fixture) { w.forbidden = true },
			do:      applied(`{"a":"1"}`, false),
			code:    403,
			want:    "gone",
			reads:   1,
		},
		{
			name:    "apply while another client creates it",
			do:      applied(`{"a":"1"}`, false),
			before:  once(overwrite(config("b", "1"))),
			want:    "a=1 b=1",
			reads:   3,
			swaps:   2,
			dropped: 1,
		},
		{
			name:     "apply new field to existing object",
			existing: config("b", "1"),
			do:       applied(`{"a":"1"}`, false),
			want:     "a=1 b=1",
			swaps:    1,
		},
		{
			name:     "apply existing field",
			existing: config("a", "0"),
			do:       applied(`{"a":"1"}`, false),
			code:     409,
			message:  "conflict",
			want:     "a=0",
			reads:    1,
		},
		{name: "apply existing field with force", existing: config("a", "0"), do: applied(`{"a":"1"}`, true), want: "a=1", swaps: 1},
		{
			name:     "apply of another object",
			existing: config(),
			do:       applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`),
			code:     422,
			message:  "metadata.uid: Invalid value: \"other\": field is immutable",
			want:     "",
			reads:    1,
		},
		{
			name:     "apply makes object too large",
			existing: config(),
			do: applyPatch(types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`),
			before:  failWith(storage.ErrTooLarge, false),
			code:    413,
			want:    "",
			swaps:   1,
			dropped: 1,
		},
		{
			name: "apply creates too large object",
			do: applyPatch(types.ApplyYAMLPatchType,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`),
			before:  failWith(storage.ErrTooLarge, false),
			code:    413,
			want:    "gone",
			swaps:   1,
			reads:   1,
			dropped: 1,
		},
		{
			name:    "apply with the UID of another object, missing",
			do:      applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`),
			code:    409,
			message: "uid mismatch",
			want:    "gone",
			reads:   1,
		},
		{
			name:    "apply without a name with the UID of another object, missing",
			do:      applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"other"}}`),
			code:    409,
			message: "uid mismatch",
			want:    "gone",
			reads:   1,
		},
		{name: "apply in a dry run", dryRun: true, do: applied(`{"a":"1"}`, false), want: "gone", reads: 2, dropped: 1},

		{name: "delete", existing: config(), do: remove(metav1.DeleteOptions{}), want: "gone", swaps: 1},
		{name: "delete missing object", do: remove(metav1.DeleteOptions{}), code: 404, want: "gone", reads: 1},
		{
			name:     "delete object with a finalizer",
			existing: withFinalizers(config(), "a/b"),
			do:       remove(metav1.DeleteOptions{}),
			want:     "marked a/b",
			swaps:    1,
		},
		{
			name:     "delete terminating object",
			existing: deleting(withFinalizers(config(), "a/b")),
			do:       remove(metav1.DeleteOptions{}),
			want:     "marked a/b",
			reads:    1,
		},
		{
			name:     "delete in the background an object in foreground deletion",
			existing: deleting(withFinalizers(config(), metav1.FinalizerDeleteDependents)),
			do:       remove(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}),
			want:     "gone",
			swaps:    1,
		},
		{
			name:     "delete in the foreground",
			existing: config(),
			do:       remove(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}),
			want:     "marked foregroundDeletion",
			swaps:    1,
		},
		{
			name:     "delete and orphan dependents",
			existing: config(),
			do:       remove(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}),
			want:     "marked orphan",
			swaps:    1,
		},
		{name: "delete with matching preconditions", existing: config(), do: remove(precondition("uid", "2")), want: "gone", swaps: 1},
		{
			name:     "delete another object",
			existing: config(),
			do:       remove(precondition("other", "")),
			code:     409,
			message:  "the UID in the precondition (other)",
			want:     "",
			reads:    1,
		},
		{
			name:     "delete another version",
			existing: config(),
			do:       remove(precondition("", "1")),
			code:     409,
			message:  "the ResourceVersion in the precondition (1)",
			want:     "",
			reads:    1,
		},
		{
			name:     "delete a version that the cache has not seen",
			existing: config(),
			since:    config("a", "1"),
			do:       remove(precondition("", "3")),
			want:     "gone",
			swaps:    1,
			reads:    1,
		},
		{
			name:     "delete while another client replaces the object",
			existing: config(),
			do:       remove(precondition("uid", "")),
			before: once(func(w *fixture, key string) {
				deleteObject(w, key)
				overwrite(withUID(config("a", "2"), "second"))(w, key)
			}),
			code:  409,
			want:  "a=2",
			swaps: 1,
		},
		{
			name:     "delete while another client adds a finalizer",
			existing: config(),
			do:       remove(metav1.DeleteOptions{}),
			before:   once(overwrite(withFinalizers(config(), "a/b"))),
			want:     "marked a/b",
			swaps:    2,
		},
		{
			name:     "delete a version while another client writes",
			existing: config(),
			do:       remove(precondition("", "2")),
			before:   once(overwrite(config("a", "1"))),
			code:     409,
			want:     "a=1",
			swaps:    1,
		},
		{
			name:     "delete while another client deletes",
			existing: config(),
			do:       remove(metav1.DeleteOptions{}),
			before:   once(deleteObject),
			code:     404,
			want:     "gone",
			swaps:    1,
		},
		{name: "delete in a dry run", dryRun: true, existing: config("a", "0"), do: remove(metav1.DeleteOptions{}), want: "a=0", reads: 1},
		{
			name:     "delete rejected by admission",
			existing: config("a", "0"),
			prepare:  rejectAll,
			do:       remove(metav1.DeleteOptions{}),
			code:     403,
			want:     "a=0",
			reads:    1,
		},
		{
			name:     "delete without response, applied",
			existing: config("a", "0"),
			do:       remove(metav1.DeleteOptions{}),
			before:   failWith(unavailable, true),
			code:     500,
			want:     "gone",
			swaps:    1,
		},
		{
			name:     "delete without response, not applied",
			existing: config("a", "0"),
			do:       remove(metav1.DeleteOptions{}),
			before:   failWith(unavailable, false),
			code:     500,
			want:     "a=0",
			swaps:    1,
		},
	}
}

// TestWrites checks the result of each write, its number of attempts and the fate of its claims.
func TestWrites(t *testing.T) {
	b := newBase(t)
	for _, tc := range writeCases() {
		t.Run(tc.name, func(t *testing.T) {
			w := b.fixture(t)
			w.begin(&tc)
			r := w.requestFor("c")
			r.DryRun = tc.dryRun
			res, err := tc.do(w, r)
			w.check(&tc, res, err)
		})
	}
}

// begin prepares the fixture for a case.
func (w *fixture) begin(tc *writeCase) {
	configs := w.kind("configmaps")
	if tc.existing != nil {
		w.put(configs, tc.existing)
	}
	w.syncCache()
	if tc.since != nil {
		w.put(configs, tc.since)
	}
	if tc.prepare != nil {
		tc.prepare(w)
	}
	w.store.swaps = 0
	w.store.reads = 0
	if tc.before != nil {
		w.store.before = func(n int, key string, _ []byte) (bool, error) { return tc.before(w, n, key) }
	}
}

// check compares the effects of a write with the expected ones.
func (w *fixture) check(tc *writeCase, res writes.Result, err error) {
	t := w.t
	t.Helper()
	switch {
	case tc.code == 0 && err != nil:
		t.Fatalf("got error %v", err)
	case tc.code == 0:
	case err == nil:
		t.Fatalf("got success, want %d %q", tc.code, tc.message)
	default:
		if st := status.Of(err); int(st.Code) != tc.code || !strings.Contains(st.Message, tc.message) {
			t.Errorf("got error %v, want %d %q", err, tc.code, tc.message)
		}
	}
	configs := w.kind("configmaps")
	if got := summary(w.stored(configs, "c")); got != tc.want {
		t.Errorf("stored object: got %q, want %q", got, tc.want)
	}
	if w.store.swaps != tc.swaps || w.store.reads != tc.reads {
		t.Errorf("got %d swaps and %d reads, want %d and %d", w.store.swaps, w.store.reads, tc.swaps, tc.reads)
	}
	wrote := 0
	if err == nil && !tc.dryRun && tc.swaps > 0 {
		wrote = 1
	}
	if len(w.written) != wrote {
		t.Errorf("Written was called %d times, want %d", len(w.written), wrote)
	}
	kept := wrote
	if len(w.requests) > 0 && w.requests[0].Operation == admission.Delete {
		kept = 0 // deletions claim nothing
	}
	if w.kept != kept || w.dropped != tc.dropped {
		t.Errorf("got %d claims kept and %d dropped, want %d and %d", w.kept, w.dropped, kept, tc.dropped)
	}
	for _, a := range w.requests {
		if a.DryRun != tc.dryRun || a.User.Name != "alice" || a.Options == nil {
			t.Errorf("admission got %+v", a)
		}
	}
	if err == nil && wrote == 1 && !res.Removed && tc.want != "gone" {
		if kv := w.store.values[configs.Key("ns", "c")]; string(kv.Value) != string(res.Stored) || kv.ModRevision != res.Revision {
			t.Errorf("result differs from the stored object")
		}
	}
	if apierrors.IsInternalError(err) && tc.unknown && w.kept+w.dropped != 0 {
		t.Error("claim of a write with unknown outcome was settled")
	}
}
