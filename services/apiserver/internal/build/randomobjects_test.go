package build

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestRandomObjectsAreAcceptedOrRejectedWithReason checks that random objects of every kind, and random
// changes of valid ones, are accepted or rejected with a reason. Accepted objects can be read in every
// form. BINNACLE_RANDOM_SEED and BINNACLE_RANDOM_ROUNDS select other or longer runs. A seed reproduces a
// failure.
func TestRandomObjectsAreAcceptedOrRejectedWithReason(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	seed := number("BINNACLE_RANDOM_SEED", 1)
	rounds := number("BINNACLE_RANDOM_ROUNDS", 1)
	api := startServer(t, func(options *config.Options) {
		_ = options.RuntimeConfig.Set("api/all=true")
		_ = options.Features.Set("AllAlpha=true,AllBeta=true")
		options.Admission.TypeChecks = false
	})
	minimal := minimalObjects(t)
	codes := map[int]int{}
	for round := range rounds {
		for _, kind := range api.server.catalogs.served.Kinds() {
			if !kind.HasVerb("create") {
				continue
			}
			writer := &randomWriter{
				testServer: api,
				kind:       kind,
				seed:       seed + round,
				minimal:    minimal[kind.GroupVersion().String()+"/"+kind.Resource],
				codes:      codes,
			}
			writer.rand = rand.New(rand.NewPCG(uint64(writer.seed), uint64(len(kind.Resource))))
			writer.run()
		}
	}
	if codes[http.StatusOK] < 50 || codes[http.StatusCreated] < 50 || codes[http.StatusUnprocessableEntity] < 100 {
		t.Errorf("got responses by status %v, want at least 50 with 200, 50 with 201 and 100 with 422", codes)
	}
	t.Logf("responses by status code: %v", codes)
}

// number returns the number in an environment variable, or fallback.
func number(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return fallback
}

// minimalObjects returns valid objects by kind.
func minimalObjects(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("../api/kinds/builtin/testdata/kinds/*.yaml")
	if err != nil || len(files) < 50 {
		t.Fatalf("got %d files of kinds, %v, want at least 50", len(files), err)
	}
	objects := map[string]map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Kind    string
			Minimal map[string]any
		}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			t.Fatal(err)
		}
		objects[definition.Kind] = definition.Minimal
	}
	return objects
}

// randomWriter writes objects of a kind.
type randomWriter struct {
	*testServer
	kind    *registry.Kind
	seed    int
	rand    *rand.Rand
	minimal map[string]any // a valid object; nil if there is none
	codes   map[int]int    // number of responses by status code
}

// influential lists the resources whose objects affect other requests. They are written in dry runs only.
var influential = []string{
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	"validatingadmissionpolicies", "validatingadmissionpolicybindings",
	"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "apiservices", "customresourcedefinitions", "flowschemas",
	"prioritylevelconfigurations", "namespaces", "resourcequotas", "limitranges", "priorityclasses", "servicecidrs",
}

// collection returns the path of the kind's collection.
func (r *randomWriter) collection() string {
	path := "/apis/" + r.kind.GroupVersion().String() + "/"
	if r.kind.Group == "" {
		path = "/api/" + r.kind.Version + "/"
	}
	if r.kind.Namespaced {
		path += "namespaces/default/"
	}
	return path + r.kind.Resource
}

// run writes random objects of a kind through every verb.
func (r *randomWriter) run() {
	query := ""
	if slices.Contains(influential, r.kind.Resource) {
		query = "?dryRun=All"
	}
	filled := r.filled()
	r.write(http.MethodPost, r.collection()+query, filled)
	if r.kind.Virtual {
		return
	}
	valid := r.valid()
	if valid == nil {
		return
	}
	name, _ := valid["metadata"].(map[string]any)["name"].(string)
	for range 3 {
		r.write(http.MethodPost, r.collection()+query, r.mixed(valid, filled, "n"+strconv.Itoa(r.rand.IntN(1e6))))
	}
	objectPath := r.collection() + "/" + name
	if code := r.write(http.MethodPost, r.collection(), valid).code; query != "" || code != http.StatusCreated {
		if query == "" {
			return
		}
		r.write(http.MethodDelete, objectPath, nil)
		return
	}
	for range 3 {
		r.write(http.MethodPut, objectPath, r.mixed(valid, filled, name))
		r.write(http.MethodPatch, objectPath, r.mixed(map[string]any{}, filled, name))
		for i := range r.kind.Subresources {
			if s := &r.kind.Subresources[i]; s.HasVerb("update") && !s.Connect {
				r.write(http.MethodPut, objectPath+"/"+s.Name, r.mixed(valid, filled, name))
			}
		}
	}
	for _, form := range []string{
		"application/json", "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;v=v1;g=meta.k8s.io",
	} {
		for _, path := range []string{objectPath, r.collection()} {
			if got := r.get(path, "Accept", form); got.code != http.StatusOK && got.code != http.StatusNotFound {
				r.t.Errorf("%s as %s: got status %d: %.500s, want 200 or 404", path, form, got.code, got.body)
			}
		}
	}
	r.write(http.MethodDelete, objectPath+"?gracePeriodSeconds=0", nil)
}

// write sends an object and checks the response.
func (r *randomWriter) write(method, path string, object map[string]any) apiResponse {
	text, err := json.Marshal(object)
	if err != nil {
		r.t.Fatal(err)
	}
	header := []string{}
	if method == http.MethodPatch {
		header = []string{"Content-Type", "application/merge-patch+json"}
	}
	response := r.send(method, path, string(text), header...)
	r.codes[response.code]++
	if wrong := misfit(response); wrong != "" {
		r.t.Errorf("seed %d: %s %s: %s: %d %.900s\n%.3000s", r.seed, method, path, wrong, response.code, response.body, text)
	}
	return response
}

// misfit returns the fault of a response, or "" for a success or a rejection with a reason.
func misfit(rejected apiResponse) string {
	switch {
	case rejected.code >= 200 && rejected.code < 300:
		return ""
	case rejected.code < 400 || rejected.code >= 500:
		return "neither accepted nor rejected"
	}
	if message, _ := rejected.field("message").(string); message == "" {
		return "rejected without a message"
	}
	if rejected.code != http.StatusUnprocessableEntity {
		return ""
	}
	causes, _ := rejected.field("details", "causes").([]any)
	for _, entry := range causes {
		cause := entry.(map[string]any)
		if field, _ := cause["field"].(string); field == "" &&
			!strings.HasSuffix(fmt.Sprint(cause["message"]), "more errors are left out") {
			return fmt.Sprintf("rejected without a field: %v", entry)
		}
	}
	if len(causes) == 0 {
		return "rejected without a cause"
	}
	return ""
}

// valid returns the minimal object of the kind in the namespace default.
func (r *randomWriter) valid() map[string]any {
	if r.minimal == nil {
		return nil
	}
	out := runtime.DeepCopyJSON(jsonOf(r.t, r.minimal))
	out["apiVersion"], out["kind"] = r.kind.GroupVersion().String(), r.kind.Kind
	if r.kind.Namespaced {
		out["metadata"].(map[string]any)["namespace"] = "default"
	}
	return out
}

// mixed returns an object with some values of another one at the same places.
func (r *randomWriter) mixed(base, other map[string]any, name string) map[string]any {
	out := runtime.DeepCopyJSON(jsonOf(r.t, base))
	for range 1 + r.rand.IntN(3) {
		r.graft(out, other)
	}
	meta, _ := out["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"] = name
	if given, _ := base["metadata"].(map[string]any); given != nil && strings.ContainsAny(fmt.Sprint(given["name"]), ".:") {
		meta["name"] = given["name"]
	}
	delete(meta, "finalizers")
	out["metadata"] = meta
	return out
}

// graft copies one random value from source to target, at any depth.
func (r *randomWriter) graft(target, source map[string]any) {
	var names []string
	for name := range source {
		if name != "apiVersion" && name != "kind" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	sort.Strings(names)
	name := names[r.rand.IntN(len(names))]
	inner, isMap := source[name].(map[string]any)
	into, has := target[name].(map[string]any)
	if isMap && (has || target[name] == nil) && r.rand.IntN(5) > 0 {
		if !has {
			into = map[string]any{}
			target[name] = into
		}
		r.graft(into, inner)
		return
	}
	if list, ok := target[name].([]any); ok && len(list) > 0 {
		theirs, _ := source[name].([]any)
		item, isItem := list[0].(map[string]any)
		if len(theirs) > 0 && isItem {
			if other, ok := theirs[0].(map[string]any); ok {
				r.graft(item, other)
				return
			}
		}
	}
	target[name] = runtime.DeepCopyJSONValue(source[name])
}

// filled returns an object with random content.
func (r *randomWriter) filled() map[string]any {
	texts := []string{
		"", "a", "a-b", "example.com/a", "10.0.0.1",
		"10.0.0.0/8", "fd00::1", "::/0", "*/5 * * * *", "1", "-1", "self.a == 1", "{", "{}", "[]",
		"a b", "ä", "\u0000", "https://a.example.com/x?y#z",
		"..", "/", strings.Repeat("a", 300), "Always", "TCP", "ReadWriteOnce", "true", "50%",
		"example.com", "$(A)", "2026-01-01T00:00:00Z", "object.spec", "a=b,c in (d)", "\xff",
	}
	fill := randfill.NewWithSeed(int64(r.seed)).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(s *string, random randfill.Continue) { *s = texts[random.Intn(len(texts))] },
		func(q *resource.Quantity, random randfill.Continue) {
			*q = *resource.NewMilliQuantity(random.Int63()>>uint(random.Intn(63))-random.Int63n(10), resource.DecimalSI)
		},
		func(t *metav1.Time, random randfill.Continue) { *t = metav1.Unix(random.Int63n(1<<33), 0) },
		func(t *metav1.MicroTime, random randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(random.Int63n(1<<33), 0))
		},
		func(v *intstr.IntOrString, random randfill.Continue) {
			*v = intstr.FromInt32(int32(random.Uint64()))
			if random.Bool() {
				*v = intstr.FromString(texts[random.Intn(len(texts))])
			}
		},
		func(e *runtime.RawExtension, random randfill.Continue) {
			e.Raw = []byte([]string{"{}", `{"a":1}`, "[1]", "null", "1"}[random.Intn(5)])
		},
		func(j *apiextensionsv1.JSON, random randfill.Continue) {
			j.Raw = []byte([]string{"{}", `"a"`, "[1]", "1"}[random.Intn(4)])
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.Raw = []byte("{}") },
		func(n *int32, random randfill.Continue) {
			*n = int32(random.Uint64()) >> uint(random.Intn(32))
		},
		func(n *int64, random randfill.Continue) {
			*n = int64(random.Uint64()) >> uint(random.Intn(64))
		},
		func(metadata *metav1.ObjectMeta, random randfill.Continue) {
			metadata.Name = "r" + strconv.Itoa(random.Intn(1e6))
			switch random.Intn(8) {
			case 0:
				random.Fill(&metadata.Labels)
			case 1:
				random.Fill(&metadata.Annotations)
			case 2:
				random.Fill(&metadata.OwnerReferences)
			case 3:
				metadata.UID = types.UID(texts[random.Intn(len(texts))])
			}
		},
		func(metadata *metav1.ManagedFieldsEntry, _ randfill.Continue) {},
	)
	obj := r.kind.New()
	fill.Fill(obj)
	obj.GetObjectKind().SetGroupVersionKind(r.kind.GVK())
	out := jsonOf(r.t, obj)
	if meta, ok := out["metadata"].(map[string]any); ok && r.kind.Namespaced {
		meta["namespace"] = "default"
	}
	return out
}

// jsonOf returns a value as decoded JSON.
func jsonOf(t *testing.T, value any) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%T: %v", value, err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
