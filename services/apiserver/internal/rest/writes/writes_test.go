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
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// rule is what becomes of one write of the config map "c" in "ns".
type rule struct {
	name string
	// there is in the store before, and the cache shows it; since was written after
	// the cache saw it.
	there, since *corev1.ConfigMap
	do           func(*world, *writes.Request) (writes.Result, error)
	dryRun       bool
	prepare      func(*world)
	// before is what happens between the read and swap n, from 1.
	before func(w *world, n int, key string) (done bool, err error)

	code    int // of the refusal; 0: none
	says    string
	want    string // what is stored in the end; "gone" when nothing is
	swaps   int    // that were tried
	reads   int    // of the store beside the cache
	dropped int    // claims; one is kept when something was written
	unknown bool   // nobody knows what became of the write: nothing is kept or dropped last
}

func create(c *corev1.ConfigMap) func(*world, *writes.Request) (writes.Result, error) {
	return func(w *world, r *writes.Request) (writes.Result, error) {
		r.Object, r.Name, r.Options = c, "", &metav1.CreateOptions{}
		return w.writer.Create(context.Background(), r)
	}
}

func update(c *corev1.ConfigMap) func(*world, *writes.Request) (writes.Result, error) {
	return func(w *world, r *writes.Request) (writes.Result, error) {
		r.Object, r.Options = c, &metav1.UpdateOptions{}
		return w.writer.Update(context.Background(), r)
	}
}

func patch(typ types.PatchType, text string) func(*world, *writes.Request) (writes.Result, error) {
	return func(w *world, r *writes.Request) (writes.Result, error) {
		p, err := writes.DecodePatch(typ, []byte(text), true)
		if err != nil {
			return writes.Result{}, err
		}
		r.Patch, r.Options = p, &metav1.PatchOptions{}
		return w.writer.Patch(context.Background(), r)
	}
}

func merge(text string) func(*world, *writes.Request) (writes.Result, error) {
	return patch(types.MergePatchType, text)
}

func applied(data string, force bool) func(*world, *writes.Request) (writes.Result, error) {
	return func(w *world, r *writes.Request) (writes.Result, error) {
		r.Force = force
		return patch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":`+data+`}`)(w, r)
	}
}

func remove(o metav1.DeleteOptions) func(*world, *writes.Request) (writes.Result, error) {
	return func(w *world, r *writes.Request) (writes.Result, error) {
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

// Changes of config maps.
func at(c *corev1.ConfigMap, version string) *corev1.ConfigMap {
	c.ResourceVersion = version
	return c
}

func withUID(c *corev1.ConfigMap, uid string) *corev1.ConfigMap {
	c.UID = types.UID(uid)
	return c
}

func held(c *corev1.ConfigMap, finalizers ...string) *corev1.ConfigMap {
	c.Finalizers = finalizers
	return c
}

func going(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.DeletionTimestamp, c.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, ptr.To(int64(0))
	return c
}

func generated(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.Name, c.GenerateName = "", "c-"
	return c
}

// Faults.
func once(fault func(w *world, key string)) func(*world, int, string) (bool, error) {
	return func(w *world, n int, key string) (bool, error) {
		if n == 1 {
			fault(w, key)
		}
		return false, nil
	}
}

func always(fault func(w *world, n int, key string)) func(*world, int, string) (bool, error) {
	return func(w *world, n int, key string) (bool, error) {
		fault(w, n, key)
		return false, nil
	}
}

func another(c *corev1.ConfigMap) func(*world, string) {
	return func(w *world, _ string) { w.put(w.kind("configmaps"), c) }
}

func gone(w *world, _ string) { w.remove(w.kind("configmaps"), "c") }

func taken(w *world, key string) {
	c := config()
	c.Name = key[strings.LastIndexByte(key, '/')+1:]
	w.put(w.kind("configmaps"), c)
}

func fails(err error, done bool) func(*world, int, string) (bool, error) {
	return func(*world, int, string) (bool, error) { return done, err }
}

func refuses(w *world) {
	w.admit = func(*admission.Request) error {
		return status.Error(http.StatusForbidden, metav1.StatusReasonForbidden, "no", nil)
	}
}

// The first revision that is given is 2; what is there has it, what was written since 3.
func ruleTable() []rule {
	unavailable := fmt.Errorf("no answer: %w", storage.ErrUnavailable)
	return []rule{
		{name: "create", do: create(wanted("a", "1")), want: "a=1", swaps: 1},
		{name: "create what is there", there: config("a", "0"), do: create(wanted("a", "1")), code: 409, says: "already exists", want: "a=0", swaps: 1, dropped: 1, reads: 1},
		{name: "create what terminates", there: going(held(config(), "a/b")), do: create(wanted()), code: 409, says: `object is being deleted: configmaps "c" already exists`, want: "marked a/b", swaps: 1, dropped: 1, reads: 1},
		{name: "create what somebody else creates", do: create(wanted("a", "1")), before: once(another(config("a", "0"))), code: 409, says: "already exists", want: "a=0", swaps: 1, dropped: 1, reads: 1},
		{name: "create with a version", do: create(at(wanted(), "5")), code: 400, says: "resourceVersion should not be set on objects to be created", want: "gone", dropped: 1},
		{name: "create what is there with a version", there: config("a", "0"), do: create(at(wanted(), "5")), code: 400, want: "a=0", dropped: 1},
		{name: "create what is refused with a version", prepare: refuses, do: create(at(wanted(), "5")), code: 403, want: "gone", dropped: 1},
		{name: "create with the version 0", do: create(at(wanted("a", "1"), "0")), want: "a=1", swaps: 1},
		{name: "create with a version that is no number", do: create(at(wanted("a", "1"), "x")), want: "a=1", swaps: 1},
		{name: "create with another namespace", do: create(func() *corev1.ConfigMap { c := wanted(); c.Namespace = "other"; return c }()), code: 400, want: "gone"},
		{name: "create what is not valid", do: create(func() *corev1.ConfigMap { c := wanted(); c.Name = "C"; return c }()), code: 422, want: "gone"},
		{name: "a generated name that is taken", do: create(generated(wanted())), before: once(taken), want: "gone", swaps: 2, dropped: 1},
		{name: "generated names that are all taken", do: create(generated(wanted())), before: always(func(w *world, _ int, key string) { taken(w, key) }),
			code: 409, says: "was not able to generate a unique name", want: "gone", swaps: 8, dropped: 8, reads: 1},
		{name: "create in a dry run", dryRun: true, do: create(wanted()), want: "gone", dropped: 1},
		{name: "create what is there in a dry run", dryRun: true, there: config("a", "0"), do: create(wanted()), code: 409, want: "a=0", dropped: 1, reads: 1},
		{name: "create what is refused", prepare: refuses, do: create(wanted()), code: 403, want: "gone", dropped: 1},
		{name: "create what mutation refuses", prepare: func(w *world) { w.mutate = func(*admission.Request) error { return errors.New("no") } }, do: create(wanted()), code: 500, want: "gone"},
		{name: "create what is too large", do: create(wanted("a", "1")), before: fails(storage.ErrTooLarge, false), code: 413, want: "gone", swaps: 2, dropped: 1},
		{name: "create what is too large with its managed fields", do: create(wanted("a", "1")), before: func(_ *world, n int, _ string) (bool, error) {
			if n == 1 {
				return false, storage.ErrTooLarge
			}
			return false, nil
		}, want: "a=1", swaps: 2},
		{name: "create without an answer, done", do: create(wanted("a", "1")), before: fails(unavailable, true), code: 500, want: "a=1", swaps: 1, unknown: true},
		{name: "create without an answer, not done", do: create(wanted("a", "1")), before: fails(context.DeadlineExceeded, false), code: 504, want: "gone", swaps: 1, unknown: true},

		{name: "update", there: config("a", "0"), do: update(wanted("b", "1")), want: "b=1", swaps: 1},
		{name: "update what is not there", do: update(wanted("b", "1")), code: 404, want: "gone", reads: 1},
		{name: "update what is gone and the cache still shows", there: config(), prepare: func(w *world) { gone(w, "") }, do: update(wanted("b", "1")), code: 404, want: "gone", swaps: 1, dropped: 1},
		{name: "update an object that was deleted", do: update(withUID(wanted("b", "1"), "old")), code: 409, want: "gone", reads: 1,
			says: "StorageError: invalid object, Code: 4, Key: /registry/configmaps/ns/c, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: old, UID in object meta: "},
		{name: "update an object that was deleted in a dry run", dryRun: true, do: update(withUID(wanted("b", "1"), "old")), code: 409, says: "Key: /configmaps/ns/c,", want: "gone", reads: 1},
		{name: "update an object that is deleted meanwhile", there: config(), do: update(withUID(wanted("b", "1"), "uid")), before: once(gone), code: 409, says: "UID in precondition: uid", want: "gone", swaps: 1, dropped: 1},
		{name: "update another name", there: config(), do: update(func() *corev1.ConfigMap { c := wanted(); c.Name = "d"; return c }()), code: 400, want: ""},
		{name: "update at its version", there: config("a", "0"), do: update(at(wanted("b", "1"), "2")), want: "b=1", swaps: 1},
		{name: "update at a version that the cache has not seen", there: config("a", "0"), since: config("a", "1"), do: update(at(wanted("b", "1"), "3")), want: "b=1", swaps: 1, reads: 1},
		{name: "update at an old version that the cache still shows", there: config("a", "0"), since: config("a", "1"), do: update(at(wanted("b", "1"), "2")),
			code: 409, says: "the object has been modified", want: "a=1", swaps: 1, dropped: 1},
		{name: "update at an old version", there: config("a", "0"), do: update(at(wanted("b", "1"), "1")), code: 409, want: "a=0", reads: 1},
		{name: "update at no version", there: config("a", "0"), do: update(at(wanted("b", "1"), "x")), code: 422, says: "metadata.resourceVersion", want: "a=0", reads: 1},
		{name: "update of a cached state that is not the newest", there: config("a", "0"), since: config("a", "1"), do: update(wanted("b", "1")), want: "b=1", swaps: 2, dropped: 1},
		{name: "update of another object", there: config("a", "0"), do: update(withUID(wanted("b", "1"), "other")), code: 409, says: "UID in precondition: other", want: "a=0", reads: 1},
		{name: "update when somebody else writes", there: config("a", "0"), do: update(wanted("b", "1")), before: once(another(config("a", "1"))), want: "b=1", swaps: 2, dropped: 1},
		{name: "update at a version when somebody else writes", there: config("a", "0"), do: update(at(wanted("b", "1"), "2")), before: once(another(config("a", "1"))),
			code: 409, says: "the object has been modified", want: "a=1", swaps: 1, dropped: 1},
		{name: "update when somebody else always writes", there: config("a", "0"), do: update(wanted("b", "1")),
			before: always(func(w *world, n int, _ string) { another(config("a", fmt.Sprint(n)))(w, "") }), code: 409, want: "a=101", swaps: 101, dropped: 101},
		{name: "update of what is deleted meanwhile", there: config(), do: update(wanted("b", "1")), before: once(gone), code: 404, want: "gone", swaps: 1, dropped: 1},
		{name: "update of what is replaced meanwhile", there: config(), do: update(withUID(wanted("b", "1"), "uid")), before: once(func(w *world, key string) {
			gone(w, key)
			another(withUID(config("a", "2"), "second"))(w, key)
		}), code: 409, says: "UID in object meta: second", want: "a=2", swaps: 1, dropped: 1},
		{name: "update that changes nothing", there: config("a", "0"), do: merge(`{}`), want: "a=0", reads: 1, dropped: 1},
		{name: "update that changes nothing in a state that is not the newest", there: config("a", "0"), since: config("a", "1"), do: merge(`{"data":{"a":"0"}}`), want: "a=0", reads: 1, swaps: 1, dropped: 1},
		{name: "update in a dry run", dryRun: true, there: config("a", "0"), do: update(wanted("b", "1")), want: "a=0", reads: 1, dropped: 1},
		{name: "update that is refused", there: config("a", "0"), prepare: refuses, do: update(wanted("b", "1")), code: 403, want: "a=0", reads: 1, dropped: 1},
		{name: "update of an old state that is refused", there: config("a", "0"), since: config("a", "1"), prepare: func(w *world) {
			w.admit = func(r *admission.Request) error {
				if r.OldObject.(*corev1.ConfigMap).Data["a"] == "0" {
					return errors.New("refused because of what was")
				}
				return nil
			}
		}, do: update(wanted("b", "1")), want: "b=1", swaps: 1, reads: 1, dropped: 1},
		{name: "update without an answer, done", there: config("a", "0"), do: update(wanted("b", "1")), before: fails(unavailable, true), code: 500, want: "b=1", swaps: 1, unknown: true},
		{name: "update without an answer, not done", there: config("a", "0"), do: update(wanted("b", "1")), before: fails(unavailable, false), code: 500, want: "a=0", swaps: 1, unknown: true},
		{name: "the last finalizer goes", there: going(held(config(), "a/b")), do: update(held(wanted())), want: "gone", swaps: 1},
		{name: "a finalizer of several goes", there: going(held(config(), "a/b", "a/c")), do: update(held(wanted(), "a/c")), want: "marked a/c", swaps: 1},
		{name: "a finalizer that comes too late", there: going(held(config(), "a/b")), do: update(held(wanted(), "a/b", "a/c")), code: 422, says: "metadata.finalizers", want: "marked a/b", reads: 1},
		{name: "the last finalizer of what is not deleted goes", there: held(config(), "a/b"), do: update(held(wanted())), want: "", swaps: 1},
		{name: "the last finalizer goes while somebody else deletes", there: held(config(), "a/b"), do: merge(`{"metadata":{"finalizers":null}}`),
			before: once(another(going(held(config(), "a/b")))), want: "gone", swaps: 2, dropped: 1},
		{name: "the last finalizer goes, and another came", there: going(held(config(), "a/b")), do: patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/finalizers/0","value":"a/b"},{"op":"remove","path":"/metadata/finalizers/0"}]`),
			before: once(another(going(held(config(), "a/b", "a/c")))), want: "marked a/c", swaps: 2, dropped: 1},

		{name: "patch", there: config("a", "0"), do: merge(`{"data":{"b":"1"}}`), want: "a=0 b=1", swaps: 1},
		{name: "patch what is not there", do: merge(`{"data":{"b":"1"}}`), code: 404, want: "gone", reads: 1},
		{name: "patch when somebody else writes", there: config("a", "0"), do: merge(`{"data":{"b":"1"}}`), before: once(another(config("a", "5"))), want: "a=5 b=1", swaps: 2, dropped: 1},
		{name: "patch at a version when somebody else writes", there: config("a", "0"), do: merge(`{"metadata":{"resourceVersion":"2"},"data":{"b":"1"}}`),
			before: once(another(config("a", "5"))), code: 409, want: "a=5", swaps: 1, dropped: 1},
		{name: "patch whose test fails on a state that is not the newest", there: config("a", "0"), since: config("a", "1"),
			do: patch(types.JSONPatchType, `[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"1"}]`), want: "a=1 b=1", swaps: 1, reads: 1},
		{name: "patch whose test fails", there: config("a", "0"), do: patch(types.JSONPatchType, `[{"op":"test","path":"/data/a","value":"1"}]`), code: 422, want: "a=0", reads: 1},
		{name: "patch of the name", there: config("a", "0"), do: merge(`{"metadata":{"name":"d"}}`), code: 400, says: "does not match the name on the URL", want: "a=0", reads: 1},
		{name: "patch in a dry run", dryRun: true, there: config("a", "0"), do: merge(`{"data":{"b":"1"}}`), want: "a=0", reads: 1, dropped: 1},
		{name: "patch without an answer", there: config("a", "0"), do: merge(`{"data":{"b":"1"}}`), before: fails(unavailable, true), code: 500, want: "a=0 b=1", swaps: 1, unknown: true},

		{name: "apply what is not there", do: applied(`{"a":"1"}`, false), want: "a=1", reads: 1, swaps: 1},
		{name: "apply what is not there, and must not be created", prepare: func(w *world) { w.forbidden = true }, do: applied(`{"a":"1"}`, false), code: 403, want: "gone", reads: 1},
		{name: "apply what somebody else creates", do: applied(`{"a":"1"}`, false), before: once(another(config("b", "1"))), want: "a=1 b=1", reads: 3, swaps: 2, dropped: 1},
		{name: "apply beside what is there", there: config("b", "1"), do: applied(`{"a":"1"}`, false), want: "a=1 b=1", swaps: 1},
		{name: "apply over what is there", there: config("a", "0"), do: applied(`{"a":"1"}`, false), code: 409, says: "conflict", want: "a=0", reads: 1},
		{name: "apply over what is there with force", there: config("a", "0"), do: applied(`{"a":"1"}`, true), want: "a=1", swaps: 1},
		{name: "apply of another object", there: config(), do: patch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`), code: 422, says: "metadata.uid: Invalid value: \"other\": field is immutable", want: "", reads: 1},
		{name: "apply that makes an object too large", there: config(), do: patch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`), before: fails(storage.ErrTooLarge, false), code: 413, want: "", swaps: 1, dropped: 1},
		{name: "apply that creates an object that is too large", do: patch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`), before: fails(storage.ErrTooLarge, false), code: 413, want: "gone", swaps: 1, reads: 1, dropped: 1},
		{name: "apply of an object that is not there", do: patch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"other"}}`), code: 409, says: "uid mismatch", want: "gone", reads: 1},
		{name: "apply without a name of an object that is not there", do: patch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"other"}}`), code: 409, says: "uid mismatch", want: "gone", reads: 1},
		{name: "apply in a dry run", dryRun: true, do: applied(`{"a":"1"}`, false), want: "gone", reads: 1, dropped: 1},

		{name: "delete", there: config(), do: remove(metav1.DeleteOptions{}), want: "gone", swaps: 1},
		{name: "delete what is not there", do: remove(metav1.DeleteOptions{}), code: 404, want: "gone", reads: 1},
		{name: "delete what has a finalizer", there: held(config(), "a/b"), do: remove(metav1.DeleteOptions{}), want: "marked a/b", swaps: 1},
		{name: "delete what is marked", there: going(held(config(), "a/b")), do: remove(metav1.DeleteOptions{}), want: "marked a/b", reads: 1},
		{name: "delete in the background what waits for dependents", there: going(held(config(), metav1.FinalizerDeleteDependents)),
			do: remove(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}), want: "gone", swaps: 1},
		{name: "delete in the foreground", there: config(), do: remove(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}), want: "marked foregroundDeletion", swaps: 1},
		{name: "delete and leave dependents", there: config(), do: remove(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}), want: "marked orphan", swaps: 1},
		{name: "delete the object that is meant", there: config(), do: remove(precondition("uid", "2")), want: "gone", swaps: 1},
		{name: "delete another object", there: config(), do: remove(precondition("other", "")), code: 409, says: "the UID in the precondition (other)", want: "", reads: 1},
		{name: "delete another version", there: config(), do: remove(precondition("", "1")), code: 409, says: "the ResourceVersion in the precondition (1)", want: "", reads: 1},
		{name: "delete a version that the cache has not seen", there: config(), since: config("a", "1"), do: remove(precondition("", "3")), want: "gone", swaps: 1, reads: 1},
		{name: "delete what is replaced meanwhile", there: config(), do: remove(precondition("uid", "")), before: once(func(w *world, key string) {
			gone(w, key)
			another(withUID(config("a", "2"), "second"))(w, key)
		}), code: 409, want: "a=2", swaps: 1},
		{name: "delete what somebody else holds meanwhile", there: config(), do: remove(metav1.DeleteOptions{}), before: once(another(held(config(), "a/b"))), want: "marked a/b", swaps: 2},
		{name: "delete a version while somebody else writes", there: config(), do: remove(precondition("", "2")), before: once(another(config("a", "1"))), code: 409, want: "a=1", swaps: 1},
		{name: "delete what is deleted meanwhile", there: config(), do: remove(metav1.DeleteOptions{}), before: once(gone), code: 404, want: "gone", swaps: 1},
		{name: "delete in a dry run", dryRun: true, there: config("a", "0"), do: remove(metav1.DeleteOptions{}), want: "a=0", reads: 1},
		{name: "delete what is refused", there: config("a", "0"), prepare: refuses, do: remove(metav1.DeleteOptions{}), code: 403, want: "a=0", reads: 1},
		{name: "delete without an answer, done", there: config("a", "0"), do: remove(metav1.DeleteOptions{}), before: fails(unavailable, true), code: 500, want: "gone", swaps: 1},
		{name: "delete without an answer, not done", there: config("a", "0"), do: remove(metav1.DeleteOptions{}), before: fails(unavailable, false), code: 500, want: "a=0", swaps: 1},
	}
}

// TestRulesOfWrites: what each write comes to, how often it is tried, and what becomes
// of what was taken for it.
func TestRulesOfWrites(t *testing.T) {
	b := newBase(t)
	for _, tc := range ruleTable() {
		t.Run(tc.name, func(t *testing.T) {
			w := b.world(t)
			w.begin(&tc)
			r := w.on("c")
			r.DryRun = tc.dryRun
			res, err := tc.do(w, r)
			w.check(&tc, res, err)
		})
	}
}

// begin makes the world what it is before a rule.
func (w *world) begin(tc *rule) {
	configs := w.kind("configmaps")
	if tc.there != nil {
		w.put(configs, tc.there)
	}
	w.see()
	if tc.since != nil {
		w.put(configs, tc.since)
	}
	if tc.prepare != nil {
		tc.prepare(w)
	}
	w.store.swaps, w.store.reads = 0, 0
	if tc.before != nil {
		w.store.before = func(n int, key string, _ []byte) (bool, error) { return tc.before(w, n, key) }
	}
}

// check looks at what a write came to.
func (w *world) check(tc *rule, res writes.Result, err error) {
	t := w.t
	t.Helper()
	switch {
	case tc.code == 0 && err != nil:
		t.Fatalf("refused with %v", err)
	case tc.code == 0:
	case err == nil:
		t.Fatalf("done, want %d %q", tc.code, tc.says)
	default:
		if st := status.Of(err); int(st.Code) != tc.code || !strings.Contains(st.Message, tc.says) {
			t.Errorf("refused with %v, want %d %q", err, tc.code, tc.says)
		}
	}
	configs := w.kind("configmaps")
	if got := show(w.stored(configs, "c")); got != tc.want {
		t.Errorf("stored is %q, want %q", got, tc.want)
	}
	if w.store.swaps != tc.swaps || w.store.reads != tc.reads {
		t.Errorf("%d swaps and %d reads, want %d and %d", w.store.swaps, w.store.reads, tc.swaps, tc.reads)
	}
	wrote := 0
	if err == nil && !tc.dryRun && tc.swaps > 0 {
		wrote = 1
	}
	if len(w.written) != wrote {
		t.Errorf("told of %d writes, want %d", len(w.written), wrote)
	}
	kept := wrote
	if len(w.asked) > 0 && w.asked[0].Operation == admission.Delete {
		kept = 0 // nothing is taken by it
	}
	if w.kept != kept || w.dropped != tc.dropped {
		t.Errorf("%d claims kept and %d dropped, want %d and %d", w.kept, w.dropped, kept, tc.dropped)
	}
	for _, a := range w.asked {
		if a.DryRun != tc.dryRun || a.User.Name != "alice" || a.Options == nil {
			t.Errorf("admission was asked %+v", a)
		}
	}
	if err == nil && wrote == 1 && !res.Removed && tc.want != "gone" {
		if kv := w.store.values[configs.Key("ns", "c")]; string(kv.Value) != string(res.Stored) || kv.ModRevision != res.Revision {
			t.Errorf("the result is not what is stored")
		}
	}
	if apierrors.IsInternalError(err) && tc.unknown && w.kept+w.dropped != 0 {
		t.Error("a claim of a write that may be done was settled")
	}
}
