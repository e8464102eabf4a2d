package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"binnacle/e2e/harness"
)

// chartFolder returns the folder of the Helm chart.
func chartFolder(t *testing.T) string {
	t.Helper()
	return filepath.Join(harness.Project(t), "deploy", "charts", "binnacle")
}

// runHelm runs a Helm command on the chart.
func runHelm(t *testing.T, command, namespace, values string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Binary(t, harness.Helm), command, chartFolder(t), namespace, values)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), nil
}

// combination is a choice of values.
type combination struct{ name, values string }

// valueCombinations returns all compatible choices of the main values.
func valueCombinations() (out []combination) {
	add := func(parts ...string) {
		out = append(out, combination{strings.Join(parts, ", "), "{" + strings.Join(parts, ", ") + "}"})
	}
	stores := []string{
		"etcd: {mode: cluster}, nats: {mode: cluster}",
		"etcd: {mode: external, endpoints: ['https://etcd.example.org:2379']}, nats: {mode: external, servers: ['tls://nats.example.org:4222']}",
		"etcd: {mode: embedded}, nats: {mode: none}, apiserver: {replicas: 1}",
		"etcd: {mode: cluster}, nats: {mode: none}, apiserver: {replicas: 1}",
		"apiserver: {enabled: false, url: 'https://api.example.org:6443'}, authnWebhook: {enabled: false}, authzWebhook: {enabled: false}",
	}
	for _, store := range stores {
		for _, certificates := range []string{"secrets", "cert-manager"} {
			for _, extras := range []bool{false, true} {
				rest := []string{store, "certificates: {mode: " + certificates + "}",
					fmt.Sprintf("serviceMonitors: {enabled: %t}, podDisruptionBudgets: {enabled: %t}, networkPolicies: {enabled: %t}", extras, extras, extras)}
				add(rest...)
				if strings.Contains(store, "enabled: false") {
					add(append(rest, "console: {enabled: true, replicas: 2}")...)
					continue
				}
				add(append(rest, "authnWebhook: {enabled: false}")...)
				add(append(rest, "authzWebhook: {enabled: false}, tokencleaner: {enabled: false}, bootstrapsigner: {enabled: false}, controllers: {enabled: false}")...)
				add(append(rest, "console: {enabled: true}, backup: {enabled: true}, authorization: {fallback: true}")...)
			}
		}
	}
	// Independent values are set once, all together.
	add(`apiserver: {service: {type: LoadBalancer, annotations: {a: b}}, extraArgs: ["--audit-log-path=/audit/log"], extraVolumes: [{name: audit, emptyDir: {}}],`+
		`extraVolumeMounts: [{name: audit, mountPath: /audit}], podAnnotations: {c: d}, nodeSelector: {e: f}, priorityClassName: high, tolerations: [{operator: Exists}],`+
		`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: g, operator: Exists}]}]}}}}`,
		"images: {prefix: registry.example.org/x, tag: v1, pullSecrets: [{name: pull}]}",
		"etcd: {storage: {className: fast, size: 1Gi}}",
		"certificates: {mode: cert-manager, certManager: {names: [api.example.org], addresses: ['2001:db8::1'], issuers: {serving-ca: {name: i, kind: ClusterIssuer, group: cert-manager.io}}}}",
		"serviceMonitors: {enabled: true, labels: {release: prometheus}}")
	return out
}

// TestChart renders the chart with all combinations of its main values. It applies each strictly,
// first in a dry run.
func TestChart(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	cli := harness.NewCLI(t, server)
	cli.Run(t, "apply", "--validate=strict", "-f", "testdata/chart-crds.yaml")
	cli.Run(t, "wait", "--for=condition=Established", "-f", "testdata/chart-crds.yaml")
	cli.Run(t, "create", "namespace", "binnacle")
	applied := newApplier(t, server)
	certs, secrets := createCertificates(t)
	cli.WithNamespace("binnacle").Run(t, "apply", "--validate=strict", "-f", secrets)
	all := valueCombinations()
	for _, combination := range all {
		if _, err := runHelm(t, "lint", "binnacle", combination.values); err != nil {
			t.Errorf("lint of %s: %v", combination.name, err)
		}
		text, err := runHelm(t, "template", "binnacle", combination.values)
		if err != nil {
			t.Errorf("%s: %v", combination.name, err)
			continue
		}
		objects := parseObjects(t, text)
		for _, o := range objects {
			if err := applied.apply(o); err != nil {
				t.Errorf("%s: %s %s: %v", combination.name, o.GetKind(), o.GetName(), err)
			}
			checkChartPods(t, combination, o, objects, certs)
		}
	}
	t.Logf("%d combinations, %d kinds of objects", len(all), len(applied.kinds))
	for _, kind := range []string{"Deployment", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy",
		"ServiceMonitor", "Certificate", "Issuer", "PersistentVolumeClaim", "CronJob"} {
		if applied.kinds[kind] == 0 {
			t.Errorf("got no %s in the chart, want one", kind)
		}
	}
}

// parseObjects decodes a YAML stream.
func parseObjects(t *testing.T, text string) (out []*unstructured.Unstructured) {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &object.Object); err != nil {
			t.Fatalf("%v:\n%s", err, doc)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
	return out
}

// applier applies objects strictly.
type applier struct {
	t      *testing.T
	client dynamic.Interface
	mapper meta.RESTMapper
	kinds  map[string]int
}

func newApplier(t *testing.T, server *harness.Server) *applier {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(server.Client().Discovery())
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &applier{t, client, restmapper.NewDiscoveryRESTMapper(groups), map[string]int{}}
}

// apply applies an object with strict validation, first as a dry run. It recreates an object whose
// immutable fields differ.
func (a *applier) apply(object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	restMapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	a.kinds[gvk.Kind]++
	resource := a.client.Resource(restMapping.Resource).Namespace(object.GetNamespace())
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	// Immutable objects of an earlier combination are recreated.
	for _, dry := range [][]string{{metav1.DryRunAll}, nil} {
		patch := func() error {
			force := true
			_, err := resource.Patch(context.Background(), object.GetName(), "application/apply-patch+yaml", data,
				metav1.PatchOptions{
					FieldManager:    "helm",
					Force:           &force,
					FieldValidation: metav1.FieldValidationStrict,
					DryRun:          dry,
				})
			return err
		}
		err := patch()
		if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "orbidden") {
			if err := resource.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{}); err != nil {
				return err
			}
			err = patch()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkChartPods checks pod templates like those of the manifests, and that every file on a command
// line is mounted with each certificate source.
func checkChartPods(t *testing.T, rendered combination, object *unstructured.Unstructured, all []*unstructured.Unstructured, certs string) {
	t.Helper()
	var template corev1.PodTemplateSpec
	switch object.GetKind() {
	case "Deployment":
		template = convert[appsv1.Deployment](t, object).Spec.Template
	case "StatefulSet":
		template = convert[appsv1.StatefulSet](t, object).Spec.Template
	case "CronJob":
		template = convert[batchv1.CronJob](t, object).Spec.JobTemplate.Spec.Template
		template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{}} // one pod needs none
	default:
		return
	}
	spec := template.Spec
	if len(spec.TopologySpreadConstraints) == 0 || spec.SecurityContext == nil ||
		!*spec.SecurityContext.RunAsNonRoot || *spec.AutomountServiceAccountToken {
		t.Errorf("%s: %s: %+v", rendered.name, object.GetName(), spec)
	}
	container := spec.Containers[0]
	checkEtcdMemory(t, container)
	checkFlags(t, strings.Replace(container.Image, ":latest", ":v1", 1), container.Args)
	files := map[string]bool{}
	for _, volume := range spec.Volumes {
		i := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
		if i < 0 {
			t.Errorf("%s: %s: got no mount of volume %s, want one", rendered.name, object.GetName(), volume.Name)
			continue
		}
		for _, f := range filesOfVolume(t, volume, all, certs) {
			files[container.VolumeMounts[i].MountPath+"/"+f] = true
		}
	}
	for _, a := range container.Args {
		if _, value, _ := strings.Cut(a,
			"="); (strings.HasPrefix(value, "/certs/") || strings.HasPrefix(value, "/etc/")) && !files[value] {
			t.Errorf("%s: %s: got argument %s, want a volume with its file; got files %v", rendered.name, object.GetName(), a,
				slices.Sorted(maps.Keys(files)))
		}
	}
}

// filesOfVolume returns the files of a volume: of a Secret that `certs` writes, of a Secret that a
// Certificate of the chart creates, or of a ConfigMap of the chart.
func filesOfVolume(t *testing.T, volume corev1.Volume, all []*unstructured.Unstructured, certs string) (out []string) {
	t.Helper()
	switch {
	case volume.Secret != nil && !strings.HasSuffix(volume.Secret.SecretName, "-certs"):
		checkSecretIsIssued(t, volume.Secret.SecretName, all)
		for _, i := range volume.Secret.Items {
			out = append(out, i.Path)
		}
	case volume.Secret != nil:
		files, err := filepath.Glob(filepath.Join(certs, strings.TrimSuffix(volume.Secret.SecretName, "-certs"), "*"))
		if err != nil || len(files) == 0 {
			t.Errorf("Secret %s: %v", volume.Secret.SecretName, err)
		}
		for _, f := range files {
			out = append(out, filepath.Base(f))
		}
	case volume.ConfigMap != nil:
		for _, o := range all {
			if o.GetKind() == "ConfigMap" && o.GetName() == volume.ConfigMap.Name {
				out = slices.Collect(maps.Keys(convert[corev1.ConfigMap](t, o).Data))
			}
		}
	case volume.Projected != nil:
		for _, s := range volume.Projected.Sources {
			checkSecretIsIssued(t, s.Secret.Name, all)
			for _, i := range s.Secret.Items {
				out = append(out, i.Path)
			}
		}
	}
	return out
}

// checkSecretIsIssued checks that a Certificate of the chart creates a Secret.
func checkSecretIsIssued(t *testing.T, secret string, all []*unstructured.Unstructured) {
	t.Helper()
	if !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool {
		made, _, _ := unstructured.NestedString(o.Object, "spec", "secretName")
		return o.GetKind() == "Certificate" && made == secret
	}) {
		t.Errorf("Secret %s: got no Certificate that creates it, want one", secret)
	}
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestChartRejectsConflictingValues expects an error from rendering.
func TestChartRejectsConflictingValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ namespace, values, want string }{
		{namespace: "binnacle", values: "etcd: {mode: embedded}", want: "with etcd.mode embedded apiserver.replicas is 1"},
		{namespace: "binnacle", values: "nats: {mode: none}", want: "with nats.mode none apiserver.replicas is 1"},
		{namespace: "binnacle", values: "etcd: {mode: external}", want: "etcd.mode external needs etcd.endpoints"},
		{namespace: "binnacle", values: "nats: {mode: external}", want: "nats.mode external needs nats.servers"},
		{namespace: "binnacle", values: "apiserver: {enabled: false}", want: "apiserver.url is needed"},
		{
			namespace: "binnacle",
			values:    "{console: {enabled: true}, apiserver: {enabled: false, url: 'https://x'}, authnWebhook: {enabled: false}, authzWebhook: {enabled: false}, tokencleaner: {enabled: false}, bootstrapsigner: {enabled: false}, controllers: {enabled: false}}",
			want:      "console.enabled needs a service to show",
		},
		{namespace: "elsewhere", values: "{}", want: "use certificates.mode cert-manager"},
		{namespace: "binnacle", values: "etcd: {mode: raft}", want: "etcd"},
		{namespace: "binnacle", values: "apiserver: {replicas: many}", want: "replicas"},
		{namespace: "binnacle", values: "apisever: {replicas: 2}", want: "apisever"},
	} {
		if _, err := runHelm(t, "template", test.namespace, test.values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.values, err, test.want)
		}
	}
}

// TestChartMatchesManifests compares the command lines and the configuration of NATS of the chart,
// with values like an overlay, with those of the overlay.
func TestChartMatchesManifests(t *testing.T) {
	t.Parallel()
	kubectl := harness.CLIOf(t, "/dev/null")
	for overlay, values := range map[string]string{
		"ha":     "{console: {enabled: true}}",
		"single": "{etcd: {mode: embedded}, nats: {mode: none}, apiserver: {replicas: 1}, console: {enabled: true}}",
	} {
		text, err := runHelm(t, "template", "binnacle", values)
		if err != nil {
			t.Fatal(err)
		}
		args := func(text string) map[string][]string {
			out := map[string][]string{}
			for _, object := range parseObjects(t, text) {
				if containers, ok, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers"); ok {
					list, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
					slices.Sort(list)
					out[object.GetName()] = list
				}
				if conf, ok, _ := unstructured.NestedString(object.Object, "data", "nats.conf"); ok {
					out["nats.conf"] = strings.Fields(conf[strings.Index(conf, "listen:"):]) // without comments
				}
			}
			return out
		}
		got := args(text)
		want := args(kubectl.Run(t, "kustomize", filepath.Join(harness.Project(t), "deploy", "manifests", "overlays", overlay)))
		if overlay == "single" { // the chart says it always
			want["apiserver"] = append(want["apiserver"], "--cluster-id=binnacle")
			slices.Sort(want["apiserver"])
		}
		for name := range want {
			if !slices.Equal(got[name], want[name]) {
				t.Errorf("%s, %s:\nchart     %q\nmanifests %q", overlay, name, got[name], want[name])
			}
		}
		if len(got) != len(want) || len(want) == 0 {
			t.Errorf("%s: got %d programs and files, want %d as in the manifests", overlay, len(got), len(want))
		}
	}
}
