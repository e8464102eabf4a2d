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
	// existing is in the store and in the cache. uncached is stored after it, and the cache has not
	// seen it.
	existing, uncached *corev1.ConfigMap
	write              writeFunc
	dryRun             bool
	setup              func(*fixture)
	beforeSwap         swapHook

	wantCode      int    // status code of the error; 0 means success
	wantMessage   string // a part of the error
	wantStored    string // summary of the stored object; "gone" if there is none
	wantSwaps     int    // attempted swaps
	wantReads     int    // reads of the store, which bypass the cache
	wantRollbacks int    // reservations rolled back; a successful write commits one
	// outcomeUnknown means that the last reservation is neither committed nor rolled back.
	outcomeUnknown bool
}

// writeFunc completes a request for the config map "c" and executes it.
type writeFunc func(*fixture, *writes.Request) (writes.Result, error)

// swapHook runs between the read and swap n, counted from 1. The swap returns its error, and is
// applied if there is none or if applyAnyway is set.
type swapHook func(f *fixture, n int, key string) (applyAnyway bool, err error)

// create returns an operation that creates a config map.
func create(config *corev1.ConfigMap) writeFunc {
	return func(f *fixture, r *writes.Request) (writes.Result, error) {
		r.Object = config
		r.Name = ""
		r.Options = &metav1.CreateOptions{}
		return f.writer.Create(context.Background(), r)
	}
}

// update returns an operation that updates a config map.
func update(config *corev1.ConfigMap) writeFunc {
	return func(f *fixture, r *writes.Request) (writes.Result, error) {
		r.Object = config
		r.Options = &metav1.UpdateOptions{}
		return f.writer.Update(context.Background(), r)
	}
}

// applyPatch returns an operation that applies a patch of any type.
func applyPatch(typ types.PatchType, text string) writeFunc {
	return func(f *fixture, r *writes.Request) (writes.Result, error) {
		p, err := patch.Decode(typ, []byte(text), true)
		if err != nil {
			return writes.Result{}, err
		}
		r.Patch = p
		r.Options = &metav1.PatchOptions{}
		return f.writer.Patch(context.Background(), r)
	}
}

// mergePatch returns an operation that applies a JSON merge patch.
func mergePatch(text string) writeFunc {
	return applyPatch(types.MergePatchType, text)
}

// applyConfig returns an operation that applies a config map with the given data, as a server-side
// apply.
func applyConfig(data string) writeFunc {
	return applyPatch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":`+data+`}`)
}

// forceApplyConfig is applyConfig that takes over fields of other managers.
func forceApplyConfig(data string) writeFunc {
	return func(f *fixture, r *writes.Request) (writes.Result, error) {
		r.Force = true
		return applyConfig(data)(f, r)
	}
}

// deleteWith returns an operation that deletes the config map with the options.
func deleteWith(options metav1.DeleteOptions) writeFunc {
	return func(f *fixture, r *writes.Request) (writes.Result, error) {
		r.Options = &options
		return f.writer.Delete(context.Background(), r)
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

// atVersion sets the resourceVersion of a config map. It and the functions down to generateName
// change the config map and return it.
func atVersion(config *corev1.ConfigMap, version string) *corev1.ConfigMap {
	config.ResourceVersion = version
	return config
}

func withUID(config *corev1.ConfigMap, uid string) *corev1.ConfigMap {
	config.UID = types.UID(uid)
	return config
}

func withFinalizers(config *corev1.ConfigMap, finalizers ...string) *corev1.ConfigMap {
	config.Finalizers = finalizers
	return config
}

func markDeleted(config *corev1.ConfigMap) *corev1.ConfigMap {
	config.DeletionTimestamp = &metav1.Time{Time: now}
	config.DeletionGracePeriodSeconds = ptr.To(int64(0))
	return config
}

func generateName(config *corev1.ConfigMap) *corev1.ConfigMap {
	config.Name = ""
	config.GenerateName = "c-"
	return config
}

// beforeFirstSwap returns a hook that calls interfere before the first swap.
func beforeFirstSwap(interfere func(f *fixture, key string)) swapHook {
	return func(f *fixture, n int, key string) (bool, error) {
		if n == 1 {
			interfere(f, key)
		}
		return false, nil
	}
}

// beforeEverySwap returns a hook that calls interfere before every swap.
func beforeEverySwap(interfere func(f *fixture, n int, key string)) swapHook {
	return func(f *fixture, n int, key string) (bool, error) {
		interfere(f, n, key)
		return false, nil
	}
}

// overwriteWith returns a function that stores a config map as another client would.
func overwriteWith(config *corev1.ConfigMap) func(*fixture, string) {
	return func(f *fixture, _ string) { f.storeDirectly(f.kind("configmaps"), config) }
}

// deleteDirectly deletes the config map "c" as another client would.
func deleteDirectly(f *fixture, _ string) { f.removeDirectly(f.kind("configmaps"), "c") }

// createSameName creates the object that the request is about to create.
func createSameName(f *fixture, key string) {
	config := storedConfigMap()
	config.Name = key[strings.LastIndexByte(key, '/')+1:]
	f.storeDirectly(f.kind("configmaps"), config)
}

// failAfterApplying returns a hook that makes each swap return an error although it is applied, as
// if the response of the store was lost.
func failAfterApplying(err error) swapHook {
	return func(*fixture, int, string) (bool, error) { return true, err }
}

// failWithoutApplying returns a hook that makes each swap return an error.
func failWithoutApplying(err error) swapHook {
	return func(*fixture, int, string) (bool, error) { return false, err }
}

// rejectAll makes validating admission reject every request.
func rejectAll(f *fixture) {
	f.validate = func(*admission.Request) error {
		return status.Error(http.StatusForbidden, metav1.StatusReasonForbidden, "no", nil)
	}
}

// writeCases returns all cases. The first revision that the store assigns is 2. Therefore existing
// is at revision 2 and uncached at revision 3.
func writeCases() []writeCase {
	return slices.Concat(createCases(), updateCases(), patchCases(), deleteCases())
}

// TestWritesHaveExpectedEffects checks the result of each write, how often it reads and writes the
// store, and whether its reservations are committed or rolled back.
func TestWritesHaveExpectedEffects(t *testing.T) {
	b := newBase(t)
	for _, tc := range writeCases() {
		t.Run(tc.name, func(t *testing.T) {
			fixture := b.fixture(t)
			fixture.setup(&tc)
			r := fixture.requestFor("c")
			r.DryRun = tc.dryRun
			res, err := tc.write(fixture, r)
			fixture.checkError(&tc, err)
			fixture.checkEffects(&tc, res, err)
		})
	}
}

// setup stores the objects of a case and installs its hook.
func (f *fixture) setup(tc *writeCase) {
	configs := f.kind("configmaps")
	if tc.existing != nil {
		f.storeDirectly(configs, tc.existing)
	}
	f.syncCache()
	if tc.uncached != nil {
		f.storeDirectly(configs, tc.uncached)
	}
	if tc.setup != nil {
		tc.setup(f)
	}
	f.store.swaps = 0
	f.store.reads = 0
	if tc.beforeSwap != nil {
		f.store.beforeSwap = func(n int, key string, _ []byte) (bool, error) { return tc.beforeSwap(f, n, key) }
	}
}

// checkError compares the error of a write with the expected one.
func (f *fixture) checkError(tc *writeCase, err error) {
	t := f.t
	t.Helper()
	switch {
	case tc.wantCode == 0 && err != nil:
		t.Fatalf("got error %v", err)
	case tc.wantCode == 0:
	case err == nil:
		t.Fatalf("got success, want %d %q", tc.wantCode, tc.wantMessage)
	default:
		if st := status.FromError(err); int(st.Code) != tc.wantCode || !strings.Contains(st.Message, tc.wantMessage) {
			t.Errorf("got error %v, want %d %q", err, tc.wantCode, tc.wantMessage)
		}
	}
}

// checkEffects compares the stored object and the calls of the store, the allocator, admission and
// Written with the expected ones.
func (f *fixture) checkEffects(tc *writeCase, res writes.Result, err error) {
	t := f.t
	t.Helper()
	configs := f.kind("configmaps")
	if got := summarize(f.storedObject(configs, "c")); got != tc.wantStored {
		t.Errorf("stored object: got %q, want %q", got, tc.wantStored)
	}
	if f.store.swaps != tc.wantSwaps || f.store.reads != tc.wantReads {
		t.Errorf("got %d swaps and %d reads, want %d and %d", f.store.swaps, f.store.reads, tc.wantSwaps, tc.wantReads)
	}
	wantWritten := 0
	if err == nil && !tc.dryRun && tc.wantSwaps > 0 {
		wantWritten = 1
	}
	if len(f.written) != wantWritten {
		t.Errorf("Written was called %d times, want %d", len(f.written), wantWritten)
	}
	wantCommits := wantWritten
	if len(f.validated) > 0 && f.validated[0].Operation == admission.Delete {
		wantCommits = 0 // deletions reserve nothing
	}
	if f.commits != wantCommits || f.rollbacks != tc.wantRollbacks {
		t.Errorf("got %d reservations committed and %d rolled back, want %d and %d",
			f.commits, f.rollbacks, wantCommits, tc.wantRollbacks)
	}
	for _, a := range f.validated {
		if a.DryRun != tc.dryRun || a.User.Name != "alice" || a.Options == nil {
			t.Errorf("got admission request %+v, want dry run: %t, user alice, options", a, tc.dryRun)
		}
	}
	if wantWritten == 1 && !res.Deleted && tc.wantStored != "gone" {
		if kv := f.store.values[configs.Key("ns", "c")]; string(kv.Value) != string(res.Stored) || kv.ModRevision != res.Revision {
			t.Errorf("got result %s at %d, want the stored object %s at %d", res.Stored, res.Revision, kv.Value, kv.ModRevision)
		}
	}
	if apierrors.IsInternalError(err) && tc.outcomeUnknown && f.commits+f.rollbacks != 0 {
		t.Error("the reservation of a write with unknown outcome was settled")
	}
}
