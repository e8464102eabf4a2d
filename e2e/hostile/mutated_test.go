package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gopkg.in/yaml.v3"

	"binnacle/e2e/harness"
)

// sampleName is the name of samples. The name of each mutated object has the same length.
const sampleName = "name-of-it"

// sample is a protobuf-encoded object of one kind, whose bytes are mutated.
type sample struct {
	resource   string // group/version/resource
	collection string
	namespace  string
	body       string
	status     bool // the kind has the status subresource
}

// sampleFiles matches the files of valid objects of every kind.
const sampleFiles = "services/apiserver/internal/api/kinds/builtin/testdata/kinds/*.yaml"

// createSamples returns a sample for each kind that has a protobuf form, as the server writes it.
// Each file's namespaced objects use a separate namespace.
func (x *tenants) createSamples(t *testing.T) []sample {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(harness.Project(t), sampleFiles))
	if err != nil || len(files) < 50 {
		t.Fatalf("got %d files of kinds, want at least 50: %v", len(files), err)
	}
	served := x.servedKinds(t)
	var samples []sample
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var content struct {
			Kind    string
			Minimal map[string]any
		}
		if err := yaml.Unmarshal(text, &content); err != nil {
			t.Fatal(err)
		}
		kind, ok := served[content.Kind]
		if !ok {
			continue
		}
		created := sample{resource: content.Kind, status: kind.status}
		gv, resource := content.Kind[:strings.LastIndex(content.Kind, "/")], content.Kind[strings.LastIndex(content.Kind, "/")+1:]
		created.collection = "/apis/" + gv + "/" + resource
		if gv == "v1" {
			created.collection = "/api/v1/" + resource
		}
		if kind.namespaced {
			created.namespace = fmt.Sprintf("n%d", i)
			x.mustCreate(t, "/api/v1/namespaces",
				fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"resource.kubernetes.io/admin-access":"true","resource.k8s.io/admin-access":"true"}}}`, created.namespace))
			created.collection = strings.TrimSuffix(created.collection, resource) + "namespaces/" + created.namespace + "/" + resource
		}
		created.body = x.protobufOf(t, created, content.Minimal)
		if created.body != "" {
			samples = append(samples, created)
		}
	}
	if len(samples) < 70 {
		t.Fatalf("got %d samples of %d files, want at least 70", len(samples), len(files))
	}
	return samples
}

// protobufOf returns an object in protobuf as the server encodes it, or "" for a kind without such
// a form. It uses sampleName as the name unless the kind requires another.
func (x *tenants) protobufOf(t *testing.T, wanted sample, object map[string]any) string {
	t.Helper()
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	fixedName := meta["name"]
	namespace, _ := meta["namespace"].(string)
	meta["annotations"] = map[string]string{"sample": "b"}
	for _, name := range []any{sampleName, fixedName} {
		meta["name"] = name
		body, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(body), `"namespace":"`+namespace+`"`, `"namespace":"`+wanted.namespace+`"`)
		response := x.sendAndRead(x.admin, "POST", wanted.collection+"?dryRun=All", jsonMedia, text, "Accept", protoMedia)
		if response.code == http.StatusNotAcceptable {
			return ""
		}
		if response.requireCode(http.StatusCreated) == nil {
			return response.body
		}
		if name == fixedName {
			t.Logf("%s has no sample: %.200s", wanted.resource, response.body)
		}
	}
	return ""
}

// servedKind describes a kind that the server serves.
type servedKind struct {
	namespaced bool
	status     bool // has the status subresource
}

// servedKinds returns the served kinds by group/version/resource.
func (x *tenants) servedKinds(t *testing.T) map[string]servedKind {
	t.Helper()
	type list struct {
		GroupVersion string
		Resources    []struct {
			Name       string
			Namespaced bool
			Verbs      []string
		}
		Groups []struct {
			Versions []struct{ GroupVersion string }
		}
	}
	get := func(path string) (l list) {
		r := x.sendAndRead(x.admin, "GET", path, "", "")
		if err := r.requireCode(http.StatusOK); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(r.body), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	paths := []string{"/api/v1"}
	for _, g := range get("/apis").Groups {
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	known := map[string]servedKind{}
	for _, path := range paths {
		l := get(path)
		for _, r := range l.Resources {
			if slices.Contains(r.Verbs, "create") && !strings.Contains(r.Name, "/") {
				known[l.GroupVersion+"/"+r.Name] = servedKind{namespaced: r.Namespaced}
			}
		}
		for _, r := range l.Resources {
			resource, isStatus := strings.CutSuffix(r.Name, "/status")
			if k, ok := known[l.GroupVersion+"/"+resource]; ok && isStatus {
				k.status = true
				known[l.GroupVersion+"/"+resource] = k
			}
		}
	}
	return known
}

// disruptiveResources are resources whose objects change the handling of other requests. They are
// mutated last, one at a time, and each object is deleted at once.
var disruptiveResources = []string{
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies",
	"validatingadmissionpolicybindings",
	"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "apiservices", "customresourcedefinitions", "flowschemas",
	"prioritylevelconfigurations", "priorityclasses", "servicecidrs",
}

// mutationCounts counts mutated objects.
type mutationCounts struct {
	sent, stored, read atomic.Int64
}

// sendMutations sends count objects, half of them with one changed byte and half with one changed
// field, and reads each stored object in every form. It deletes created objects if deleteCreated is
// true.
func (counts *mutationCounts) sendMutations(t *testing.T, attacked *tenants, client *http.Client, random *rand.Rand, original sample, count int,
	deleteCreated bool) {
	storedPath := original.collection + "/stored-one"
	created := attacked.sendAndRead(client, "POST", original.collection, protoMedia, strings.Replace(original.body, sampleName, "stored-one", 1))
	updates := created.code == http.StatusCreated && strings.Contains(original.body, sampleName)
	for i := range count {
		data := []byte(original.body)
		if i%2 == 0 {
			data[protobufMagic+random.IntN(len(data)-protobufMagic)] = byte(random.IntN(256))
		} else {
			data = mutateStructure(random, data)
		}
		name := fmt.Sprintf("m%0*d", len(sampleName)-1, i)
		method, path := "POST", original.collection
		// Of 8 mutations, 2 are updates, one of each kind. Every other pair updates the status.
		if updates && i%8 >= 6 {
			method, path, name = "PUT", storedPath, "stored-one"
			if original.status && i%16 >= 14 {
				path += "/status"
			}
		}
		counts.sent.Add(1)
		form := responseForms[i%len(responseForms)]
		response := attacked.sendAndRead(client, method, path, protoMedia, strings.Replace(string(data), sampleName, name, 1),
			"Accept", objectForm(form))
		if response.err != nil || response.code >= http.StatusInternalServerError {
			t.Errorf("%s of %s, response form %s: %v\nbody: %.2000x", method, original.resource, form,
				response.requireCode(http.StatusCreated), data)
		}
		if response.code/100 != 2 {
			continue
		}
		counts.stored.Add(1)
		object := original.collection + "/" + name
		if !strings.Contains(original.body, sampleName) {
			object = attacked.sampleObjectPath(client, original.collection)
		}
		for _, form := range responseForms {
			form = objectForm(form)
			got := attacked.sendAndRead(client, "GET", object, "", "", "Accept", form)
			if got.code != http.StatusNotFound && got.requireCode(http.StatusOK) != nil { // the mutation may be in the name
				t.Errorf("%s read as %s: %v\nbody: %.2000x", original.resource, form,
					got.requireCode(http.StatusOK), data)
			}
			counts.read.Add(1)
		}
		if deleteCreated && method == "POST" {
			attacked.sendAndRead(client, "DELETE", object, "", "")
		}
	}
	attacked.checkCollection(t, original.collection)
}

// protobufMagic is the length of the prefix of objects in protobuf, "k8s\x00". Without it, the
// server rejects a body before it decodes the object.
const protobufMagic = 4

// objectForm returns the form of an object for the form of a list.
func objectForm(listForm string) string {
	return strings.Replace(listForm, "MetadataList", "Metadata", 1)
}

// sampleObjectPath returns the path of the object with the annotation of samples in a collection
// whose names are fixed. Without such an object, it returns a path that does not exist.
func (x *tenants) sampleObjectPath(client *http.Client, collection string) string {
	var test struct {
		Items []struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
	}
	r := x.sendAndRead(client, "GET", collection, "", "")
	if json.Unmarshal([]byte(r.body), &test) == nil {
		for _, o := range test.Items {
			if o.Metadata.Annotations["sample"] != "" {
				return collection + "/" + o.Metadata.Name
			}
		}
	}
	return collection + "/none"
}

// TestMutatedProtobufIsServedInEveryForm creates and updates objects of every kind with one byte or
// field changed. Each request is rejected with 4xx, or the object is stored and served in every
// form.
func TestMutatedProtobufIsServedInEveryForm(t *testing.T) {
	seed, err := strconv.ParseUint(envOr("BINNACLE_HOSTILE_SEED", fmt.Sprint(rand.Uint64())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("BINNACLE_HOSTILE_SEED=%d", seed)
	tenants := startTenants(t, harness.WithFlags("--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"))
	tenants.grantNamespace(t)
	mutations := 25 // of each sample
	if tenants.long {
		mutations = 1_500
	}
	samples := tenants.createSamples(t)
	var counts mutationCounts
	const untilReturn = 0 // the attack ends when its function returns
	tenants.attackFor(t, untilReturn, func(context.Context) {
		work := make(chan int)
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for i := range work {
					counts.sendMutations(t, tenants, newClient(tlsCertificate(t, tenants.server.Admin)),
						rand.New(rand.NewPCG(seed, uint64(i))), samples[i], mutations, false)
				}
			})
		}
		var last []int
		for i, candidate := range samples {
			if slices.ContainsFunc(disruptiveResources, func(resource string) bool {
				return strings.HasSuffix(candidate.resource, "/"+resource)
			}) {
				last = append(last, i)
				continue
			}
			work <- i
		}
		close(work)
		workers.Wait()
		for _, i := range last {
			counts.sendMutations(t, tenants, tenants.admin, rand.New(rand.NewPCG(seed, uint64(i))), samples[i], mutations, true)
		}
		tenants.checkReads(t)
	})
	t.Logf("%d samples, %d mutations, %d stored, %d reads of stored objects", len(samples), counts.sent.Load(),
		counts.stored.Load(), counts.read.Load())
}
