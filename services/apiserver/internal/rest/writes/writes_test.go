package writes_test

import (
	"context"
	"net/http"
	"slices"
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

// create returns an operation that creates a config map.
func create(c *corev1.ConfigMap) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Object = c
		r.Name = ""
		r.Options = &metav1.CreateOptions{}
		return w.writer.Create(context.Background(), r)
	}
}

// update returns an operation that updates a config map.
func update(c *corev1.ConfigMap) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Object = c
		r.Options = &metav1.UpdateOptions{}
		return w.writer.Update(context.Background(), r)
	}
}

// applyPatch returns an operation that applies a patch of any type.
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

// merge returns an operation that applies a JSON merge patch.
func merge(text string) func(*fixture, *writes.Request) (writes.Result, error) {
	return applyPatch(types.MergePatchType, text)
}

// applyConfig returns an operation that applies a config map with the given data, as a server-side
// apply.
func applyConfig(data string, force bool) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Force = force
		return applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":`+data+`}`)(w, r)
	}
}

// deleteOp returns an operation that deletes the config map.
func deleteOp(o metav1.DeleteOptions) func(*fixture, *writes.Request) (writes.Result, error) {
	return func(w *fixture, r *writes.Request) (writes.Result, error) {
		r.Options = &o
		return w.writer.Delete(context.Background(), r)
	}
}

// precondition returns the options of a deletion with a uid and a resourceVersion; empty means
// none.
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

// atVersion sets the resourceVersion of a config map. This function and the ones below change and
// return it.
func atVersion(c *corev1.ConfigMap, version string) *corev1.ConfigMap {
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

func markDeleted(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.DeletionTimestamp = &metav1.Time{Time: now}
	c.DeletionGracePeriodSeconds = ptr.To(int64(0))
	return c
}

func generateName(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.Name = ""
	c.GenerateName = "c-"
	return c
}

// failOnce returns a hook that calls fault before the first swap. This function and the ones below
// make hooks for memory.
func failOnce(fault func(w *fixture, key string)) func(*fixture, int, string) (bool, error) {
	return func(w *fixture, n int, key string) (bool, error) {
		if n == 1 {
			fault(w, key)
		}
		return false, nil
	}
}

// failAlways returns a hook that calls fault before every swap.
func failAlways(fault func(w *fixture, n int, key string)) func(*fixture, int, string) (bool, error) {
	return func(w *fixture, n int, key string) (bool, error) {
		fault(w, n, key)
		return false, nil
	}
}

// overwriteFirst returns a fault that writes a config map.
func overwriteFirst(c *corev1.ConfigMap) func(*fixture, string) {
	return func(w *fixture, _ string) { w.storeDirectly(w.kind("configmaps"), c) }
}

func deleteObject(w *fixture, _ string) { w.removeDirectly(w.kind("configmaps"), "c") }

func takeName(w *fixture, key string) {
	c := storedConfigMap()
	c.Name = key[strings.LastIndexByte(key, '/')+1:]
	w.storeDirectly(w.kind("configmaps"), c)
}

// failWith returns a hook that makes each swap return an error; done reports whether the swap is
// applied before.
func failWith(err error, done bool) func(*fixture, int, string) (bool, error) {
	return func(*fixture, int, string) (bool, error) { return done, err }
}

func rejectAll(w *fixture) {
	w.admit = func(*admission.Request) error {
		return status.Error(http.StatusForbidden, metav1.StatusReasonForbidden, "no", nil)
	}
}

// writeCases returns all cases. The first assigned revision is 2. An existing object has it, the
// one written since has 3.
func writeCases() []writeCase {
	return slices.Concat(createCases(), updateCases(), patchCases(), deleteCases())
}

// TestWritesHaveExpectedEffects checks the result of each write, its number of attempts and the fate of its claims.
func TestWritesHaveExpectedEffects(t *testing.T) {
	b := newBase(t)
	for _, tc := range writeCases() {
		t.Run(tc.name, func(t *testing.T) {
			w := b.fixture(t)
			w.prepare(&tc)
			r := w.requestFor("c")
			r.DryRun = tc.dryRun
			res, err := tc.do(w, r)
			w.checkEffects(&tc, res, err)
		})
	}
}

// prepare prepares the fixture for a case.
func (w *fixture) prepare(tc *writeCase) {
	configs := w.kind("configmaps")
	if tc.existing != nil {
		w.storeDirectly(configs, tc.existing)
	}
	w.syncCache()
	if tc.since != nil {
		w.storeDirectly(configs, tc.since)
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

// checkEffects compares the effects of a write with the expected ones.
func (w *fixture) checkEffects(tc *writeCase, res writes.Result, err error) {
	t := w.t
	t.Helper()
	switch {
	case tc.code == 0 && err != nil:
		t.Fatalf("got error %v", err)
	case tc.code == 0:
	case err == nil:
		t.Fatalf("got success, want %d %q", tc.code, tc.message)
	default:
		if st := status.FromError(err); int(st.Code) != tc.code || !strings.Contains(st.Message, tc.message) {
			t.Errorf("got error %v, want %d %q", err, tc.code, tc.message)
		}
	}
	configs := w.kind("configmaps")
	if got := summarize(w.storedObject(configs, "c")); got != tc.want {
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
			t.Errorf("got admission request %+v, want dry run: %t, user alice, options", a, tc.dryRun)
		}
	}
	if err == nil && wrote == 1 && !res.Deleted && tc.want != "gone" {
		if kv := w.store.values[configs.Key("ns", "c")]; string(kv.Value) != string(res.Stored) || kv.ModRevision != res.Revision {
			t.Errorf("got result %s at %d, want the stored object %s at %d", res.Stored, res.Revision, kv.Value, kv.ModRevision)
		}
	}
	if apierrors.IsInternalError(err) && tc.unknown && w.kept+w.dropped != 0 {
		t.Error("claim of a write with unknown outcome was settled")
	}
}
