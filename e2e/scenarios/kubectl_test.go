package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

const watchLimit = 20 * time.Second

// TestKubectl tests kubectl commands that concern more than one object.
func TestKubectl(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	cli := harness.NewCLI(t, server)
	for name, test := range map[string]func(*testing.T, *harness.CLI){
		"discovery":         checkDiscovery,
		"generators":        checkGenerators,
		"watch":             checkWatch,
		"wait":              checkWait,
		"dry-run":           checkDryRun,
		"many":              checkManyObjects,
		"rollout":           checkRollout,
		"nodes":             checkNodes,
		"unknown-fields":    checkUnknownFields,
		"server-side-apply": checkServerSideApply,
		"events":            checkEvents,
		"finalizers":        checkFinalizers,
		"subresource":       checkSubresource,
		"replace":           checkReplace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cli.Run(t, "create", "namespace", name)
			test(t, cli.WithNamespace(name))
		})
	}
}

// expectParts fails the test unless output contains all parts.
func expectParts(t *testing.T, what, output string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(output, p) {
			t.Errorf("%s: want %q in:\n%s", what, p, output)
		}
	}
}

// checkDiscovery checks api-resources, api-versions, version, auth, cluster-info, get --raw and
// explain.
func checkDiscovery(t *testing.T, cli *harness.CLI) {
	resources := cli.Run(t, "api-resources")
	for _, line := range []string{
		`configmaps +cm +v1 +true +ConfigMap`, `deployments +deploy +apps/v1 +true +Deployment`,
		`nodes +no +v1 +false +Node`, `horizontalpodautoscalers +hpa +autoscaling/v2 +true +HorizontalPodAutoscaler`,
		`customresourcedefinitions +crd,crds +apiextensions.k8s.io/v1 +false +CustomResourceDefinition`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(resources) {
			t.Errorf("api-resources: want /%s/ in:\n%s", line, resources)
		}
	}
	if cluster := cli.Run(t, "api-resources", "--namespaced=false", "--verbs=list", "-o",
		"name"); strings.Contains(cluster, "configmaps") || !strings.Contains(cluster, "persistentvolumes\n") {
		t.Errorf("api-resources --namespaced=false: want persistentvolumes and no configmaps, got:\n%s", cluster)
	}
	expectParts(t, "api-versions", "\n"+cli.Run(t, "api-versions"), "\nv1\n", "\napps/v1\n", "\nbatch/v1\n",
		"\nautoscaling/v1\n", "\nautoscaling/v2\n", "\nrbac.authorization.k8s.io/v1\n")
	version := cli.Execute(t, "", "version")
	expectParts(t, "version", version.Stdout, "Client Version: v1.33", "Server Version: v1.33")
	if version.Stderr != "" {
		t.Errorf("version: got warning %s, want \"\"", version.Stderr)
	}
	expectParts(t, "whoami", cli.Run(t, "auth", "whoami"), "e2e-admin", harness.SystemMasters, "system:authenticated")
	expectParts(t, "can-i", cli.Run(t, "auth", "can-i", "delete", "nodes"), "yes")
	expectParts(t, "cluster-info", cli.Run(t, "cluster-info"), "Kubernetes control plane")
	if out := cli.Run(t, "get", "--raw", "/readyz"); out != "ok" {
		t.Errorf("get --raw /readyz: got %q, want \"ok\"", out)
	}
	expectParts(t, "get --raw", cli.Run(t, "get", "--raw", "/api/v1/namespaces/default"), `"kind":"Namespace"`)
	expectParts(t, "explain a field", cli.Run(t, "explain", "pod.spec.containers.image"), "KIND:       Pod",
		"FIELD: image <string>")
	expectParts(t, "explain a version", cli.Run(t, "explain", "hpa", "--api-version=autoscaling/v1"), "VERSION:    v1")
	expectParts(t, "explain --recursive", cli.Run(t, "explain", "deployment.spec", "--recursive"),
		"terminationGracePeriodSeconds\t<integer>")
	if r := cli.Execute(t, "", "explain", "pod.spec.nothing"); r.Err == nil {
		t.Errorf("explain an unknown field: got %s, want an error", r.Stdout)
	}
	if r := cli.Execute(t, "", "get", "nothings"); r.Err == nil || !strings.Contains(r.Stderr,
		`the server doesn't have a resource type "nothings"`) {
		t.Errorf("get nothings: got %v, error output %s, want an error about the resource type", r.Err, r.Stderr)
	}
}

// checkGenerators checks commands that generate objects (create, run, expose, autoscale) and
// kubectl set.
func checkGenerators(t *testing.T, cli *harness.CLI) {
	for _, test := range []struct {
		args []string
		want string
		path string // path in the created object whose value is checked
		at   string
	}{
		{
			args: []string{"create", "configmap", "c", "--from-literal=a=1"},
			want: "configmap/c created",
			path: "configmap/c={.data.a}",
			at:   "1",
		},
		{args: []string{"create", "secret", "generic", "s", "--from-literal=a=1"}, want: "secret/s created",
			path: "secret/s={.data.a}", at: "MQ=="},
		{args: []string{"create", "secret", "docker-registry", "d", "--docker-username=u", "--docker-password=p"},
			want: "secret/d created", path: "secret/d={.type}", at: "kubernetes.io/dockerconfigjson"},
		{args: []string{"create", "deployment", "web", "--image=nginx", "--replicas=3"}, want: "deployment.apps/web created",
			path: "deployment/web={.spec.replicas}", at: "3"},
		{args: []string{"create", "cronjob", "cj", "--image=busybox", "--schedule=*/5 * * * *"}, want: "cronjob.batch/cj created",
			path: "cronjob/cj={.spec.schedule}", at: "*/5 * * * *"},
		{args: []string{"create", "job", "j", "--from=cronjob/cj"}, want: "job.batch/j created",
			path: "job/j={.metadata.ownerReferences[0].kind}", at: "CronJob"},
		{args: []string{"create", "role", "r", "--verb=get,list", "--resource=pods"},
			want: "role.rbac.authorization.k8s.io/r created", path: "role/r={.rules[0].verbs[1]}", at: "list"},
		{args: []string{"create", "rolebinding", "b", "--role=r", "--user=alice"},
			want: "rolebinding.rbac.authorization.k8s.io/b created", path: "rolebinding/b={.subjects[0].name}", at: "alice"},
		{args: []string{"create", "serviceaccount", "sa"}, want: "serviceaccount/sa created",
			path: "serviceaccount/sa={.metadata.name}", at: "sa"},
		{
			args: []string{"create", "quota", "q", "--hard=pods=2"},
			want: "resourcequota/q created",
			path: "quota/q={.spec.hard.pods}",
			at:   "2",
		},
		{args: []string{"create", "ingress", "i", "--rule=h.example.org/*=web:80"}, want: "ingress.networking.k8s.io/i created",
			path: "ingress/i={.spec.rules[0].host}", at: "h.example.org"},
		{args: []string{"create", "poddisruptionbudget", "p", "--selector=a=b", "--min-available=1"},
			want: "poddisruptionbudget.policy/p created", path: "pdb/p={.spec.minAvailable}", at: "1"},
		{args: []string{"autoscale", "deployment", "web", "--max=4"}, want: "horizontalpodautoscaler.autoscaling/web autoscaled",
			path: "hpa/web={.spec.maxReplicas}", at: "4"},
		{args: []string{"expose", "deployment", "web", "--port=80", "--cluster-ip=None"}, want: "service/web exposed",
			path: "service/web={.spec.selector.app}", at: "web"},
		{
			args: []string{"run", "p", "--image=nginx", "--labels=run=x"},
			want: "pod/p created",
			path: "pod/p={.metadata.labels.run}",
			at:   "x",
		},
		{args: []string{"set", "image", "deployment/web", "nginx=nginx:9"}, want: "deployment.apps/web image updated",
			path: "deployment/web={.spec.template.spec.containers[0].image}", at: "nginx:9"},
		{args: []string{"set", "env", "deployment/web", "A=b"}, want: "deployment.apps/web env updated",
			path: "deployment/web={.spec.template.spec.containers[0].env[0].value}", at: "b"},
		{args: []string{"set", "resources", "deployment/web", "--limits=cpu=200m"},
			want: "deployment.apps/web resource requirements updated",
			path: "deployment/web={.spec.template.spec.containers[0].resources.limits.cpu}", at: "200m"},
	} {
		r := cli.Execute(t, "", test.args...)
		if r.Err != nil || !strings.Contains(r.Stdout, test.want) {
			t.Errorf("kubectl %s: want %q, got %v\n%s%s", strings.Join(test.args, " "), test.want, r.Err, r.Stdout, r.Stderr)
			continue
		}
		object, path, _ := strings.Cut(test.path, "=")
		if got := cli.Run(t, "get", object, "-o", "jsonpath="+path); got != test.at {
			t.Errorf("after kubectl %s: got %q, want %q at %s", strings.Join(test.args, " "), got, test.at, test.path)
		}
	}
	expectParts(t, "get all", cli.Run(t, "get", "all", "-o", "name"), "deployment.apps/web", "pod/p", "service/web",
		"cronjob.batch/cj", "job.batch/j")
}

// checkWatch checks that get -w prints a line for each change.
func checkWatch(t *testing.T, cli *harness.CLI) {
	ctx, cancel := context.WithTimeout(t.Context(), watchLimit)
	defer cancel()
	cli.Run(t, "create", "configmap", "first")
	cmd := cli.Command(ctx, "", "get", "configmaps", "-w", "-L", "a", "--no-headers", "--output-watch-events")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	age := regexp.MustCompile(` \d+s\b`)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			got := age.ReplaceAllString(strings.Join(strings.Fields(lines.Text()), " "), "")
			if strings.Contains(got, "kube-root-ca.crt") {
				continue
			}
			if got != want {
				t.Errorf("watch: got %q, want %q", got, want)
			}
			return
		}
		t.Fatalf("the watch ended before %q: %v", want, lines.Err())
	}
	next("ADDED first 0")
	cli.Run(t, "create", "configmap", "second", "--from-literal=a=1")
	next("ADDED second 1")
	cli.Run(t, "label", "configmap", "second", "a=x")
	next("MODIFIED second 1 x")
	cli.Run(t, "delete", "configmap", "second")
	next("DELETED second 1 x")
	cancel()
	_ = cmd.Wait() // it was killed
}

// checkWait checks that wait returns when a field, a deletion or a condition occurs.
func checkWait(t *testing.T, cli *harness.CLI) {
	cli.Run(t, "create", "configmap", "w")
	ctx, cancel := context.WithTimeout(t.Context(), watchLimit)
	defer cancel()
	jsonpath := cli.Command(ctx, "", "wait", "configmap/w", "--for=jsonpath={.data.done}=yes", "--timeout=20s")
	gone := cli.Command(ctx, "", "wait", "configmap/w", "--for=delete", "--timeout=20s")
	for _, c := range []interface{ Start() error }{jsonpath, gone} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	cli.Run(t, "patch", "configmap", "w", "--type=merge", "-p", `{"data":{"done":"yes"}}`)
	if err := jsonpath.Wait(); err != nil {
		t.Errorf("wait --for=jsonpath: %v", err)
	}
	cli.Run(t, "delete", "configmap", "w")
	if err := gone.Wait(); err != nil {
		t.Errorf("wait --for=delete: %v", err)
	}
	// Another client writes a condition into the status.
	cli.Run(t, "create", "deployment", "d", "--image=x")
	cond := cli.Command(ctx, "", "wait", "deployment/d", "--for=condition=Available", "--timeout=20s")
	if err := cond.Start(); err != nil {
		t.Fatal(err)
	}
	cli.Run(t, "patch", "deployment", "d", "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Available","status":"True"}]}}`)
	if err := cond.Wait(); err != nil {
		t.Errorf("wait --for=condition: %v", err)
	}
}

// checkDryRun checks that server-side dry runs change nothing.
func checkDryRun(t *testing.T, cli *harness.CLI) {
	if out := cli.Run(t, "create", "configmap", "ghost",
		"--dry-run=server"); out != "configmap/ghost created (server dry run)\n" {
		t.Errorf("create: got %q, want \"configmap/ghost created (server dry run)\\n\"", out)
	}
	if out := cli.Run(t, "get", "configmaps", "--field-selector=metadata.name=ghost", "-o", "name"); out != "" {
		t.Errorf("dry run created %q, want \"\"", out)
	}
	cli.Run(t, "create", "configmap", "real", "--from-literal=a=1")
	cli.Run(t, "patch", "configmap", "real", "--dry-run=server", "--type=merge", "-p", `{"data":{"a":"2"}}`)
	if got := cli.Run(t, "get", "configmap", "real", "-o", "jsonpath={.data.a}"); got != "1" {
		t.Errorf("dry run patched: got %q, want \"1\"", got)
	}
	cli.Run(t, "delete", "configmap", "real", "--dry-run=server")
	cli.Run(t, "get", "configmap", "real")
}

// checkManyObjects checks commands for many objects: apply of a folder, chunked lists, selectors
// and --prune.
func checkManyObjects(t *testing.T, cli *harness.CLI) {
	dir := t.TempDir()
	const objects = 30
	for i := range objects {
		manifest := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m%02d, labels: {half: %q, set: many}}\n---\n", i, []string{"even", "odd"}[i%2])
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(cli.Run(t, "apply", "-f", dir), " created\n"); got != objects {
		t.Errorf("apply of a folder: got %d created, want %d", got, objects)
	}
	if got := strings.Count(cli.Run(t, "apply", "-f", dir), " unchanged\n"); got != objects {
		t.Errorf("second apply of a folder: got %d unchanged, want %d", got, objects)
	}
	for _, chunk := range []string{"0", "7"} {
		if got := strings.Count(cli.Run(t, "get", "configmaps", "-l", "set=many", "-o", "name",
			"--chunk-size="+chunk), "\n"); got != objects {
			t.Errorf("--chunk-size=%s: got %d, want %d", chunk, got, objects)
		}
	}
	if got := strings.Fields(cli.Run(t, "get", "configmaps", "-l", "set=many,half!=odd", "--sort-by=.metadata.name",
		"-o", "jsonpath={.items[*].metadata.name}")); len(got) != objects/2 || got[0] != "m00" {
		t.Errorf("selector and sort: got %q, want %d, m00 first", got, objects/2)
	}
	cli.Run(t, "delete", "configmaps", "-l", "half=odd")
	if got := strings.Count(cli.Run(t, "get", "configmaps", "-l", "set=many", "-o", "name"), "\n"); got != objects/2 {
		t.Errorf("after delete -l: got %d, want %d", got, objects/2)
	}
	if out := cli.Run(t, "apply", "-f", filepath.Join(dir, "00.yaml"), "--prune", "-l", "set=many",
		"--prune-allowlist=core/v1/ConfigMap"); strings.Count(out, " pruned\n") != objects/2-1 {
		t.Errorf("apply --prune: want %d pruned objects, got:\n%s", objects/2-1, out)
	}
	cli.Run(t, "delete", "-f", dir, "--ignore-not-found")
	if out := cli.Run(t, "get", "configmaps", "-l", "set=many", "-o", "name"); out != "" {
		t.Errorf("after delete -f: got %q, want \"\"", out)
	}
}

// checkRollout checks the rollout commands that only change a Deployment.
func checkRollout(t *testing.T, cli *harness.CLI) {
	cli.Run(t, "create", "deployment", "d", "--image=a")
	expectParts(t, "pause", cli.Run(t, "rollout", "pause", "deployment/d"), "paused")
	expectParts(t, "resume", cli.Run(t, "rollout", "resume", "deployment/d"), "resumed")
	expectParts(t, "restart", cli.Run(t, "rollout", "restart", "deployment/d"), "restarted")
	if cli.Run(t, "get", "deployment", "d", "-o",
		`jsonpath={.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}`) == "" {
		t.Error("after rollout restart: got no annotation restartedAt, want a time")
	}
	if got := cli.Run(t, "get", "deployment", "d", "-o", "jsonpath={.metadata.generation}"); got != "4" {
		t.Errorf("generation after three changes of the spec: got %s, want \"4\"", got)
	}
}

// checkNodes checks taint, cordon and uncordon.
func checkNodes(t *testing.T, cli *harness.CLI) {
	cli.RunWith(t, "apiVersion: v1\nkind: Node\nmetadata: {name: e2e-node}\n", "create", "-f", "-")
	expectParts(t, "get nodes", cli.Run(t, "get", "node", "e2e-node"), "Unknown", "<none>")
	expectParts(t, "taint", cli.Run(t, "taint", "node", "e2e-node", "k=v:NoSchedule"), "tainted")
	expectParts(t, "cordon", cli.Run(t, "cordon", "e2e-node"), "cordoned")
	expectParts(t, "get a cordoned node", cli.Run(t, "get", "node", "e2e-node"), "SchedulingDisabled")
	expectParts(t, "describe", cli.Run(t, "describe", "node", "e2e-node"), "k=v:NoSchedule", "Unschedulable:      true")
	expectParts(t, "uncordon", cli.Run(t, "uncordon", "e2e-node"), "uncordoned")
	cli.Run(t, "delete", "node", "e2e-node")
}

// checkUnknownFields checks each level of --validate for a field that is not in the schema.
func checkUnknownFields(t *testing.T, cli *harness.CLI) {
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: u}\nspec: {}\n"
	if r := cli.Execute(t, manifest, "create", "-f", "-"); r.Err == nil || !strings.Contains(r.Stderr, `unknown field "spec"`) {
		t.Errorf("strict: got %v, error output %s, want an error about the field", r.Err, r.Stderr)
	}
	if r := cli.Execute(t, manifest, "create", "-f", "-", "--validate=warn"); r.Err != nil ||
		!strings.Contains(r.Stderr, `Warning: unknown field "spec"`) {
		t.Errorf("warn: got %v, error output %s, want a warning", r.Err, r.Stderr)
	}
	cli.Run(t, "delete", "configmap", "u")
	if r := cli.Execute(t, manifest, "create", "-f", "-", "--validate=ignore"); r.Err != nil || r.Stderr != "" {
		t.Errorf("ignore: got %v, error output %s, want none", r.Err, r.Stderr)
	}
}

// checkServerSideApply checks conflicts, forced applies and unchanged applies of server-side apply.
func checkServerSideApply(t *testing.T, cli *harness.CLI) {
	manifest := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned}\ndata: {a: \"" + value + "\"}\n"
	}
	first := cli.Execute(t, manifest("1"), "apply", "--server-side", "-f", "-")
	expectParts(t, "first", first.Stdout+first.Stderr, "configmap/owned serverside-applied")
	version := cli.Run(t, "get", "configmap", "owned", "-o", "jsonpath={.metadata.resourceVersion}")
	cli.RunWith(t, manifest("1"), "apply", "--server-side", "-f", "-")
	if again := cli.Run(t, "get", "configmap", "owned", "-o", "jsonpath={.metadata.resourceVersion}"); again != version {
		t.Errorf("the same apply again changed the version: %s then %s, want %v", version, again, version)
	}
	if r := cli.Execute(t, manifest("2"), "apply", "--server-side", "--field-manager=other", "-f",
		"-"); r.Err == nil || !strings.Contains(r.Stderr, "Apply failed with 1 conflict") ||
		!strings.Contains(r.Stderr, ".data.a") {
		t.Errorf("conflict: got %v, error output %s, want the error: Apply failed with 1 conflict: .data.a", r.Err, r.Stderr)
	}
	cli.RunWith(t, manifest("2"), "apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-")
	if got := cli.Run(t, "get", "configmap", "owned", "-o", "jsonpath={.data.a}"); got != "2" {
		t.Errorf("after a forced apply: got %q, want \"2\"", got)
	}
	if got := cli.Run(t, "get", "configmap", "owned", "--show-managed-fields", "-o",
		"jsonpath={.metadata.managedFields[*].manager}"); got != "other" && got != "kubectl other" {
		t.Errorf("managers: got %q, want \"other\" or \"kubectl other\"", got)
	}
	expectParts(t, "diff", cli.Execute(t, manifest("3"), "diff", "--server-side", "--force-conflicts", "-f",
		"-").Stdout, "\n+  a: \"3\"")
}

// checkEvents checks that an event is shown by kubectl events and in both API groups.
func checkEvents(t *testing.T, cli *harness.CLI) {
	event := map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": "ev.1"},
		"involvedObject": map[string]any{"kind": "ConfigMap", "name": "c", "namespace": "events", "apiVersion": "v1"},
		"reason":         "Tested", "message": "it was tried", "type": "Normal", "count": 3,
		"firstTimestamp": "2025-01-01T00:00:00Z", "lastTimestamp": "2025-01-01T00:00:00Z",
	}
	raw, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	cli.Run(t, "create", "configmap", "c")
	cli.RunWith(t, string(raw), "create", "-f", "-")
	expectParts(t, "events", cli.Run(t, "events", "--for=configmap/c"), "Tested", "it was tried", "(x3 over")
	expectParts(t, "get events", cli.Run(t, "get", "events", "--field-selector=involvedObject.name=c"), "configmap/c",
		"it was tried")
	expectParts(t, "the newer group",
		cli.Run(t, "get", "events.events.k8s.io", "ev.1", "-o",
			"jsonpath={.note} {.regarding.name} {.deprecatedCount}"), "it was tried c 3")
}

// checkFinalizers checks that a deleted object exists until its last finalizer is removed.
func checkFinalizers(t *testing.T, cli *harness.CLI) {
	cli.RunWith(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [e2e.example.org/hold]}\n",
		"create", "-f", "-")
	expectParts(t, "delete", cli.Run(t, "delete", "configmap", "held", "--wait=false"), "deleted")
	if cli.Run(t, "get", "configmap", "held", "-o", "jsonpath={.metadata.deletionTimestamp}") == "" {
		t.Error("deleted object with a finalizer: got no deletionTimestamp, want one")
	}
	ctx, cancel := context.WithTimeout(t.Context(), watchLimit)
	defer cancel()
	waiting := cli.Command(ctx, "", "delete", "configmap", "held", "--wait", "--timeout=20s")
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	cli.Run(t, "patch", "configmap", "held", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	// The object may be gone before the second delete reads it.
	_ = waiting.Wait()
	if r := cli.Execute(t, "", "get", "configmap", "held"); r.Err == nil || !strings.Contains(r.Stderr, "(NotFound)") {
		t.Errorf("after the last finalizer: got %v, error output %s, want NotFound", r.Err, r.Stderr)
	}
}

// checkSubresource checks reads and patches of the scale and status subresources.
func checkSubresource(t *testing.T, cli *harness.CLI) {
	cli.Run(t, "create", "deployment", "d", "--image=x", "--replicas=2")
	expectParts(t, "scale as a table", cli.Run(t, "get", "deployment", "d", "--subresource=scale"), "DESIRED", "AVAILABLE")
	if got := cli.Run(t, "get", "deployment", "d", "--subresource=scale", "-o",
		"jsonpath={.kind} {.spec.replicas}"); got != "Scale 2" {
		t.Errorf("scale: got %q, want \"Scale 2\"", got)
	}
	cli.Run(t, "patch", "deployment", "d", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":7}}`)
	cli.Run(t, "patch", "deployment", "d", "--subresource=status", "--type=merge", "-p",
		`{"status":{"replicas":1,"observedGeneration":9},"spec":{"replicas":100}}`)
	if got := cli.Run(t, "get", "deployment", "d", "-o",
		"jsonpath={.spec.replicas} {.status.replicas} {.status.observedGeneration} {.metadata.generation}"); got != "7 1 9 2" {
		t.Errorf("spec, status and generation: got %q, want \"7 1 9 2\"", got)
	}
	cli.Run(t, "patch", "deployment", "d", "--type=merge", "-p", `{"status":{"replicas":100}}`)
	if got := cli.Run(t, "get", "deployment", "d", "-o", "jsonpath={.status.replicas}"); got != "1" {
		t.Errorf("an update of the object changed its status: got %q, want \"1\"", got)
	}
}

// checkReplace checks conditional, unconditional and forced replaces.
func checkReplace(t *testing.T, cli *harness.CLI) {
	cli.Run(t, "create", "configmap", "r", "--from-literal=a=1")
	old := cli.Run(t, "get", "configmap", "r", "-o", "json")
	cli.Run(t, "patch", "configmap", "r", "--type=merge", "-p", `{"data":{"a":"2"}}`)
	if r := cli.Execute(t, old, "replace", "-f", "-"); r.Err == nil || !strings.Contains(r.Stderr, "(Conflict)") {
		t.Errorf("replace with an old resourceVersion: got %v, error output %s, want Conflict", r.Err, r.Stderr)
	}
	uid := cli.Run(t, "get", "configmap", "r", "-o", "jsonpath={.metadata.uid}")
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r}\ndata: {b: \"3\"}\n"
	cli.RunWith(t, manifest, "replace", "-f", "-")
	if got := cli.Run(t, "get", "configmap", "r", "-o", "jsonpath={.data} {.metadata.uid}"); got != `{"b":"3"} `+uid {
		t.Errorf("after replace: got %q, want %v", got, `{"b":"3"} `+uid)
	}
	cli.RunWith(t, manifest, "replace", "--force", "-f", "-")
	if got := cli.Run(t, "get", "configmap", "r", "-o", "jsonpath={.metadata.uid}"); got == uid {
		t.Errorf("after replace --force: got the old uid %s, want another", got)
	}
}
