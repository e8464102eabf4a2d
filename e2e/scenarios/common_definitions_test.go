package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// fieldModules are Go modules with widely used custom resource definitions.
var fieldModules = []struct {
	name, module string
	definitions  []string // patterns of files in the module
	examples     []string // folders whose objects of the defined kinds are used
}{
	{
		name:        "cert-manager",
		module:      "github.com/cert-manager/cert-manager@v1.17.2",
		definitions: []string{"deploy/crds/crd-*.yaml"},
	},
	{name: "cluster-api", module: "sigs.k8s.io/cluster-api@v1.10.1",
		definitions: []string{"config/crd/bases/*.yaml", "bootstrap/kubeadm/config/crd/bases/*.yaml",
			"controlplane/kubeadm/config/crd/bases/*.yaml"}},
	{name: "gateway-api", module: "sigs.k8s.io/gateway-api@v1.3.0", definitions: []string{"config/crd/standard/*.yaml"},
		examples: []string{"examples/standard"}},
	{name: "gateway-api, experimental", module: "sigs.k8s.io/gateway-api@v1.3.0",
		definitions: []string{"config/crd/experimental/gateway*.yaml"},
		examples:    []string{"examples/standard", "examples/experimental"}},
	{name: "prometheus-operator", module: "github.com/prometheus-operator/prometheus-operator@v0.82.2",
		definitions: []string{"example/prometheus-operator-crd/*.yaml"}, examples: []string{"example"}},
}

// TestDefinitionsOfCommonProjects installs definitions from Go modules and uses them: example
// objects, explain, tables, metadata, and invalid objects that must be rejected.
func TestDefinitionsOfCommonProjects(t *testing.T) {
	t.Parallel()
	for _, test := range fieldModules {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := downloadModule(t, test.module)
			server := harness.StartServer(t)
			client := dynamic.NewForConfigOrDie(server.Config())
			var files []string
			for _, pattern := range test.definitions {
				found, err := filepath.Glob(filepath.Join(dir, pattern))
				if err != nil || len(found) == 0 {
					t.Fatalf("%s: got %d files, %v", pattern, len(found), err)
				}
				files = append(files, found...)
			}
			kinds := installDefinitions(t, client, files)

			cli := harness.NewCLI(t, server)
			for _, gvk := range sortedKinds(kinds) {
				k := kinds[gvk]
				text := cli.Run(t, "explain", "--recursive", "--api-version="+gvk.GroupVersion().String(), k.gvr.Resource)
				expectParts(t, "explain "+gvk.String(), text, "KIND:       "+gvk.Kind+"\n", "FIELDS:\n",
					"  metadata\t<ObjectMeta>")
				if k.spec {
					expectParts(t, "explain "+gvk.String(), text, "  spec\t<Object>")
				}
			}

			tried := 0
			own, err := os.ReadFile(filepath.Join("testdata", "field", test.name+".yaml"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			for _, obj := range parseDocuments(t, string(own)) {
				tried += createAndCompare(t, server, client, kinds, obj, test.name)
			}
			for _, folder := range test.examples {
				// Files of scrape classes contain parts of objects.
				err := filepath.WalkDir(filepath.Join(dir, folder), func(path string, e fs.DirEntry, err error) error {
					if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" || strings.Contains(path, "crd") ||
						strings.Contains(path, "scrapeclass") {
						return err
					}
					text, err := os.ReadFile(path)
					for _, obj := range parseDocuments(t, string(text)) {
						tried += createAndCompare(t, server, client, kinds, obj, strings.TrimPrefix(path, dir))
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d definitions, %d kinds and versions, %d objects", len(files), len(kinds), tried)
			if tried < 5 {
				t.Errorf("got only %d objects, want at least 5", tried)
			}
		})
	}
}

// downloadModule downloads a module and returns its folder.
func downloadModule(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(cmd.Dir, "go.mod"), []byte("module none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	var result struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &result); err != nil || jsonErr != nil || result.Dir == "" {
		t.Skipf("cannot download %s: %v %s", module, err, result.Error)
	}
	return result.Dir
}

// customKind is a version of a custom resource.
type customKind struct {
	gvr        schema.GroupVersionResource
	namespaced bool
	spec       bool // has a spec with fields
}

func sortedKinds(kinds map[schema.GroupVersionKind]customKind) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for gvk := range kinds {
		out = append(out, gvk)
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// templates match placeholders of a chart.
var templates = regexp.MustCompile(`\{\{[^}]*\}\}`)

// installDefinitions applies definitions and returns the served kinds.
func installDefinitions(t *testing.T, client dynamic.Interface, files []string) map[schema.GroupVersionKind]customKind {
	t.Helper()
	kinds := map[schema.GroupVersionKind]customKind{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range parseDocuments(t, templates.ReplaceAllString(string(text), "filled-in")) {
			if crd.GetKind() != "CustomResourceDefinition" {
				continue
			}
			got, err := client.Resource(definitionsGVR).Create(t.Context(), crd,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("create of the definitions in %s: got error %v, want none", filepath.Base(file), err)
				continue
			}
			group, _, _ := unstructured.NestedString(got.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(got.Object, "spec", "names", "kind")
			plural, _, _ := unstructured.NestedString(got.Object, "spec", "names", "plural")
			scope, _, _ := unstructured.NestedString(got.Object, "spec", "scope")
			versions, _, _ := unstructured.NestedSlice(got.Object, "spec", "versions")
			for _, v := range versions {
				v, _ := v.(map[string]any)
				if served, _ := v["served"].(bool); !served {
					continue
				}
				name, _ := v["name"].(string)
				fields, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema", "properties", "spec", "properties")
				gv := schema.GroupVersion{Group: group, Version: name}
				kinds[gv.WithKind(kind)] = customKind{
					gvr:        gv.WithResource(plural),
					namespaced: scope == "Namespaced",
					spec:       len(fields) > 0,
				}
			}
		}
	}
	return kinds
}

func parseDocuments(t *testing.T, text string) (out []*unstructured.Unstructured) {
	t.Helper()
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var document any
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		fields, _ := document.(map[string]any)
		obj := &unstructured.Unstructured{Object: fields}
		if obj.GetKind() != "" && obj.GetAPIVersion() != "" {
			out = append(out, obj)
		}
	}
}

// createAndCompare applies an object of one of the kinds and checks that invalid variants are
// rejected. It returns 1, or 0 for objects of other kinds.
func createAndCompare(t *testing.T, server *harness.Server, client dynamic.Interface,
	kinds map[schema.GroupVersionKind]customKind, obj *unstructured.Unstructured, from string) int {
	t.Helper()
	kind, ok := kinds[obj.GroupVersionKind()]
	if !ok {
		return 0
	}
	ctx, at := t.Context(), fmt.Sprintf("%s: %s %s", from, obj.GetKind(), obj.GetName())
	var resource dynamic.ResourceInterface = client.Resource(kind.gvr)
	if kind.namespaced {
		if obj.GetNamespace() == "" {
			obj.SetNamespace("default")
		}
		ensureNamespace(t, ctx, server.Client(), obj.GetNamespace())
		resource = client.Resource(kind.gvr).Namespace(obj.GetNamespace())
	}

	wrong := obj.DeepCopy()
	wrong.SetName("wrong")
	_ = unstructured.SetNestedField(wrong.Object, true, "spec", "thatNobodyKnows")
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err := resource.Create(ctx, wrong,
		strict); kind.spec && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(),
		`unknown field "spec.thatNobodyKnows"`)) {
		t.Errorf("%s with an unknown field: got %v", at, err)
	}
	wrong = obj.DeepCopy()
	wrong.Object["spec"] = "no object"
	if _, err := resource.Create(ctx, wrong, strict); kind.spec && !apierrors.IsInvalid(err) {
		t.Errorf("%s with a string as spec: got %v", at, err)
	}

	// Examples of a module may have the same name.
	apply := metav1.ApplyOptions{FieldManager: "field", Force: true}
	if _, err := resource.Apply(ctx, obj.GetName(), obj, apply); err != nil {
		t.Errorf("%s: %v", at, err)
		return 1
	}
	// Defaults in the status are stored with the second write.
	got, err := resource.Apply(ctx, obj.GetName(), obj, apply)
	if err != nil {
		t.Errorf("%s, second apply: %v", at, err)
		return 1
	}
	again, err := resource.Apply(ctx, obj.GetName(), obj, apply)
	if err != nil || again.GetResourceVersion() != got.GetResourceVersion() {
		t.Errorf("%s, third apply: got %v, resourceVersion %s then %s", at, err, got.GetResourceVersion(),
			again.GetResourceVersion())
	}
	for _, form := range []string{"Table", "PartialObjectMetadata"} {
		body, code := readForm(t, server, got, kind, form)
		if code != http.StatusOK || !strings.Contains(body, `"kind":"`+form+`"`) || !strings.Contains(body, got.GetName()) {
			t.Errorf("%s as %s: got %d %.300s", at, form, code, body)
		}
	}
	return 1
}

func ensureNamespace(t *testing.T, ctx context.Context, client kubernetes.Interface, name string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Namespace",
		"metadata":   map[string]any{"name": name},
	}}
	raw, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces").Body(raw).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// readForm reads an object as a Table or partial metadata.
func readForm(t *testing.T, server *harness.Server, obj *unstructured.Unstructured, k customKind, form string) (string, int) {
	t.Helper()
	path := "/apis/" + k.gvr.GroupVersion().String() + "/"
	if k.namespaced {
		path += "namespaces/" + obj.GetNamespace() + "/"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var code int
	raw, _ := server.Client().CoreV1().RESTClient().Get().AbsPath(path+k.gvr.Resource+"/"+obj.GetName()).
		SetHeader("Accept", "application/json;as="+form+";v=v1;g=meta.k8s.io").Do(ctx).StatusCode(&code).Raw()
	return string(raw), code
}
