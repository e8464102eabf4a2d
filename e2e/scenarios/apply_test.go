package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applyautoscaling "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	applybatch "k8s.io/client-go/applyconfigurations/batch/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworking "k8s.io/client-go/applyconfigurations/networking/v1"
	applypolicy "k8s.io/client-go/applyconfigurations/policy/v1"
	applyrbac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// TestPatchesAndAppliesKeepOwnership tests patches, edits, diffs, field ownership, field validation
// and dry runs with kubectl, and client-go's typed apply.
func TestPatchesAndAppliesKeepOwnership(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	cli := harness.NewCLI(t, server)
	for name, test := range map[string]func(*testing.T, *harness.CLI){
		"migration":  checkMigrationToServerSideApply,
		"conflicts":  checkApplyConflicts,
		"edit":       checkEdit,
		"patch":      checkPatches,
		"validate":   checkValidation,
		"dry-run":    checkDryRuns,
		"scaled":     checkApplyOfScaledDeployment,
		"diff-apply": checkDiff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cli.Run(t, "create", "namespace", name)
			test(t, cli.WithNamespace(name))
		})
	}
	t.Run("typed", func(t *testing.T) {
		t.Parallel()
		cli.Run(t, "create", "namespace", "typed")
		checkTypedApply(t, server.Client())
	})
}

// webDeployment returns a Deployment manifest.
func webDeployment(image, replicas string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: %s
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: %q, ports: [{containerPort: 80}], env: [{name: A, value: "1"}]}
`, replicas, image)
}

// fieldManagers returns the field managers of an object in the order of its managedFields.
func fieldManagers(t *testing.T, cli *harness.CLI, object string) string {
	t.Helper()
	return cli.Run(t, "get", object, "--show-managed-fields", "-o",
		`jsonpath={range .metadata.managedFields[*]}{.manager}:{.operation}{":"}{.subresource} {end}`)
}

// checkMigrationToServerSideApply migrates an object from client-side to server-side apply without
// a conflict, and back.
func checkMigrationToServerSideApply(t *testing.T, cli *harness.CLI) {
	cli.RunWith(t, webDeployment("web:1", "2"), "apply", "-f", "-")
	expectParts(t, "before", fieldManagers(t, cli, "deployment/web"), "kubectl-client-side-apply:Update:")
	cli.RunWith(t, webDeployment("web:2", "2"), "apply", "--server-side", "-f", "-")
	if got := fieldManagers(t, cli, "deployment/web"); !strings.Contains(got, "kubectl:Apply: ") ||
		strings.Contains(got, "Update") {
		t.Errorf("managers after the migration: got %q, want kubectl:Apply and no Update", got)
	}
	// A removed field has no other owner and is deleted.
	without := strings.Replace(webDeployment("web:2", "2"), `, env: [{name: A, value: "1"}]`, "", 1)
	cli.RunWith(t, without, "apply", "--server-side", "-f", "-")
	if got := cli.Run(t, "get", "deployment/web", "-o", "jsonpath={..env}"); got != "" {
		t.Errorf("env: got %s, want none", got)
	}
	// The annotation is updated, so that the migration back works.
	expectParts(t, "the annotation", cli.Run(t, "apply", "view-last-applied", "deployment/web"), "web:2")
	cli.RunWith(t, webDeployment("web:3", "3"), "apply", "-f", "-")
	if got := cli.Run(t, "get", "deployment/web", "-o", "jsonpath={..image} {.spec.replicas}"); got != "web:3 3" {
		t.Errorf("client-side apply again: got %q, want \"web:3 3\"", got)
	}
}

// checkApplyConflicts checks that an apply of fields of another manager conflicts unless it is
// forced.
func checkApplyConflicts(t *testing.T, cli *harness.CLI) {
	cli.RunWith(t, webDeployment("web:1", "2"), "apply", "--server-side", "--field-manager=first", "-f", "-")
	result := cli.Execute(t, webDeployment("web:2", "3"), "apply", "--server-side", "--field-manager=second", "-f", "-")
	if result.Err == nil {
		t.Fatal("apply by another manager: got no error, want a conflict")
	}
	expectParts(t, "conflict", result.Stderr, `Apply failed with 2 conflicts: conflicts with "first"`, ".spec.replicas",
		`.spec.template.spec.containers[name="web"].image`, "--force-conflicts")
	cli.RunWith(t, webDeployment("web:2", "2"), "apply", "--server-side", "--force-conflicts",
		"--field-manager=second", "-f", "-")
	if result := cli.Execute(t, webDeployment("web:1", "2"), "apply", "--server-side", "--field-manager=first", "-f",
		"-"); result.Err == nil {
		t.Error("apply by the first manager after a forced apply: got no error, want a conflict")
	}
	cli.Run(t, "set", "image", "deployment/web", "web=web:9")
	result = cli.Execute(t, webDeployment("web:2", "2"), "apply", "--server-side", "--field-manager=second", "-f", "-")
	expectParts(t, "conflict with an update", result.Stderr,
		`Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: .spec.template.spec.containers[name="web"].image`)
	expectParts(t, "managers", fieldManagers(t, cli, "deployment/web"), "first:Apply:", "second:Apply:", "kubectl-set:Update:")
}

// checkEdit checks kubectl edit with and without a change.
func checkEdit(t *testing.T, cli *harness.CLI) {
	script := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsed -i 's/value-one/value-two/' \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cli.Run(t, "create", "configmap", "e", "--from-literal=a=value-one")
	editor := cli.WithEnv("KUBE_EDITOR=" + script)
	expectParts(t, "edit", editor.Run(t, "edit", "configmap", "e"), "configmap/e edited")
	if got := cli.Run(t, "get", "configmap", "e", "-o", "jsonpath={.data.a}"); got != "value-two" {
		t.Errorf("after edit: got %q, want \"value-two\"", got)
	}
	expectParts(t, "managers", fieldManagers(t, cli, "configmap/e"), "kubectl-edit:Update:")
	r := editor.Execute(t, "", "edit", "configmap", "e")
	expectParts(t, "nothing to edit", r.Stdout+r.Stderr, "Edit cancelled, no changes made")
}

// checkPatches checks strategic, merge and JSON patches, and that invalid ones are rejected.
func checkPatches(t *testing.T, cli *harness.CLI) {
	cli.RunWith(t, webDeployment("web:1", "1"), "create", "-f", "-")
	cli.Run(t, "patch", "deployment", "web", "-p",
		`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s:1"}]}}}}`)
	cli.Run(t, "patch", "deployment", "web", "--type=merge", "-p",
		`{"metadata":{"labels":{"app":null,"tier":"front"}},"spec":{"paused":true}}`)
	cli.Run(t, "patch", "deployment", "web", "--type=json", "-p",
		`[{"op":"test","path":"/spec/paused","value":true},{"op":"replace","path":"/spec/replicas","value":4}]`)
	cli.Run(t, "patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":4}}`)
	got := cli.Run(t, "get", "deployment", "web", "-o",
		"jsonpath={..image} {.metadata.labels} {.spec.paused} {.spec.replicas} {.status.replicas}")
	if want := `s:1 web:1 {"tier":"front"} true 4 4`; got != want {
		t.Errorf("after the patches: got %s, want %s", got, want)
	}
	if r := cli.Execute(t, "", "patch", "deployment", "web", "--type=json", "-p",
		`[{"op":"test","path":"/spec/paused","value":false},{"op":"replace","path":"/spec/replicas","value":5}]`); r.Err == nil {
		t.Error("patch with a failing test operation: got no error, want one")
	}
	if r := cli.Execute(t, "", "patch", "deployment", "web", "--type=merge", "-p",
		`{"metadata":{"name":"other"}}`); r.Err == nil {
		t.Error("patch of the name: got no error, want one")
	}
	if r := cli.Execute(t, "", "patch", "deployment", "web", "--type=merge", "-p",
		`{"spec":{"replicas":"many"}}`); r.Err == nil || !strings.Contains(r.Stderr, "patch: Invalid value") {
		t.Errorf("patch that does not decode: got %v, error output %s, want the error: patch: Invalid value", r.Err, r.Stderr)
	}
	expectParts(t, "managers", fieldManagers(t, cli, "deployment/web"), "kubectl-create:Update: ",
		"kubectl-patch:Update: ", "kubectl-patch:Update:status ")
}

// checkValidation checks each value of --validate with apply.
func checkValidation(t *testing.T, cli *harness.CLI) {
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: v}\nspec: {}\n"
	for _, test := range []struct {
		validate, stderr string
		fails            bool
	}{
		{validate: "strict", stderr: `unknown field "spec"`, fails: true},
		{validate: "true", stderr: `unknown field "spec"`, fails: true},
		{validate: "warn", stderr: `Warning: unknown field "spec"`},
		{validate: "ignore"},
		{validate: "false"},
	} {
		r := cli.Execute(t, manifest, "apply", "--dry-run=server", "--validate="+test.validate, "-f", "-")
		if (r.Err != nil) != test.fails || !strings.Contains(r.Stderr, test.stderr) || test.stderr == "" && r.Stderr != "" {
			t.Errorf("--validate=%s: got %v, error output %s, want %q and failure: %t", test.validate, r.Err, r.Stderr,
				test.stderr, test.fails)
		}
	}
	// Server-side apply rejects unknown fields in any case.
	if r := cli.Execute(t, manifest, "apply", "--server-side", "--validate=ignore", "-f", "-"); r.Err == nil ||
		!strings.Contains(r.Stderr, ".spec: field not declared in schema") {
		t.Errorf("server-side apply: got %v, error output %s, want the error: .spec: field not declared in schema",
			r.Err, r.Stderr)
	}
}

// checkDryRuns checks that no command with --dry-run=server changes an object.
func checkDryRuns(t *testing.T, cli *harness.CLI) {
	run := func(what, stdin string, args ...string) {
		t.Helper()
		expectParts(t, what, cli.RunWith(t, stdin, append(args, "--dry-run=server")...), "(server dry run)")
	}
	run("apply", webDeployment("web:1", "1"), "apply", "--server-side", "-f", "-")
	if r := cli.Execute(t, "", "get", "deployment", "web"); r.Err == nil {
		t.Fatal("get after a dry run: got the object, want NotFound")
	}
	cli.RunWith(t, webDeployment("web:1", "1"), "apply", "--server-side", "-f", "-")
	before := cli.Run(t, "get", "deployment", "web", "--show-managed-fields", "-o", "yaml")
	run("apply again", webDeployment("web:2", "2"), "apply", "--server-side", "-f", "-")
	run("replace", webDeployment("web:3", "3"), "replace", "-f", "-")
	cli.Run(t, "patch", "deployment", "web", "--dry-run=server", "-p", `{"spec":{"replicas":9}}`)
	run("scale", "", "scale", "deployment", "web", "--replicas=9")
	run("label", "", "label", "deployment", "web", "a=b")
	run("delete", "", "delete", "deployment", "web")
	run("delete all", "", "delete", "deployments", "--all")
	if r := cli.Execute(t, webDeployment("web:2", "2"), "apply", "--server-side", "--field-manager=other",
		"--dry-run=server", "-f", "-"); r.Err == nil {
		t.Error("dry run by another manager: got no error, want a conflict")
	}
	if after := cli.Run(t, "get", "deployment", "web", "--show-managed-fields", "-o", "yaml"); after != before {
		t.Errorf("after dry runs: got\n%s\nwant the object unchanged:\n%s", after, before)
	}
}

// checkApplyOfScaledDeployment checks that a scale request owns the replicas through the scale
// subresource.
func checkApplyOfScaledDeployment(t *testing.T, cli *harness.CLI) {
	cli.RunWith(t, webDeployment("web:1", "1"), "apply", "--server-side", "-f", "-")
	cli.Run(t, "scale", "deployment", "web", "--replicas=3")
	r := cli.Execute(t, webDeployment("web:1", "1"), "apply", "--server-side", "-f", "-")
	expectParts(t, "conflict", r.Stderr, `conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas`)
	without := strings.Replace(webDeployment("web:1", "1"), "  replicas: 1\n", "", 1)
	cli.RunWith(t, without, "apply", "--server-side", "-f", "-")
	if got := cli.Run(t, "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"); got != "3" {
		t.Errorf("replicas: got %s, want \"3\"", got)
	}
}

// checkDiff checks kubectl diff with and without a difference.
func checkDiff(t *testing.T, cli *harness.CLI) {
	cli.RunWith(t, webDeployment("web:1", "1"), "apply", "--server-side", "-f", "-")
	if r := cli.Execute(t, webDeployment("web:1", "1"), "diff", "--server-side", "-f", "-"); r.Err != nil || r.Stdout != "" {
		t.Errorf("diff: got %v, output %s, want no difference", r.Err, r.Stdout)
	}
	r := cli.Execute(t, webDeployment("web:2", "1"), "diff", "--server-side", "-f", "-")
	if r.Err == nil {
		t.Error("diff with a change: got no error, want exit code 1")
	}
	expectParts(t, "diff", r.Stdout, "\n-        image: web:1\n+        image: web:2\n")
}

// typedNamespace is the namespace of the objects of checkTypedApply.
const typedNamespace = "typed"

// typedOptions are the options of checkTypedApply.
var typedOptions = metav1.ApplyOptions{FieldManager: "typed"}

// checkTypedApply applies ten kinds twice, the second time with fewer fields, and extracts them as
// apply configurations.
func checkTypedApply(t *testing.T, client kubernetes.Interface) {
	const ns = typedNamespace
	ctx := t.Context()
	applyOptions := typedOptions
	labels := map[string]string{"app": "a"}
	selector := applymeta.LabelSelector().WithMatchLabels(labels)
	pod := func() *applycore.PodTemplateSpecApplyConfiguration {
		return applycore.PodTemplateSpec().WithLabels(labels).WithSpec(applycore.PodSpec().WithRestartPolicy(corev1.RestartPolicyAlways).WithContainers(
			applycore.Container().WithName("c").WithImage("c:1").WithPorts(applycore.ContainerPort().WithContainerPort(80)),
		))
	}
	once := func() *applycore.PodTemplateSpecApplyConfiguration {
		p := pod()
		p.Spec.WithRestartPolicy(corev1.RestartPolicyNever)
		return p
	}
	check := func(kind string, applied metav1.Object, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("apply of a %s: got error %v, want none", kind, err)
			return
		}
		managers := applied.GetManagedFields()
		if len(managers) != 1 || managers[0].Manager != "typed" || managers[0].Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("%s: got managers %v, want only typed with operation %s", kind, managers, metav1.ManagedFieldsOperationApply)
		}
	}
	cm, err := client.CoreV1().ConfigMaps(ns).Apply(ctx,
		applycore.ConfigMap("a", ns).WithData(map[string]string{"a": "1", "b": "2"}), applyOptions)
	check("config map", cm, err)
	secret, err := client.CoreV1().Secrets(ns).Apply(ctx,
		applycore.Secret("a", ns).WithStringData(map[string]string{"a": "1"}).WithType(corev1.SecretTypeOpaque), applyOptions)
	check("secret", secret, err)
	service, err := client.CoreV1().Services(ns).Apply(ctx,
		applycore.Service("a", ns).WithSpec(applycore.ServiceSpec().WithSelector(labels).WithPorts(
			applycore.ServicePort().WithName("http").WithPort(80).WithTargetPort(intstr.FromInt32(8080)),
		)), applyOptions)
	check("service", service, err)
	account, err := client.CoreV1().ServiceAccounts(ns).Apply(ctx, applycore.ServiceAccount("a", ns).WithLabels(labels), applyOptions)
	check("service account", account, err)
	deployment, err := client.AppsV1().Deployments(ns).Apply(ctx,
		applyapps.Deployment("a", ns).WithSpec(applyapps.DeploymentSpec().WithReplicas(2).WithSelector(selector).WithTemplate(pod())), applyOptions)
	check("deployment", deployment, err)
	set, err := client.AppsV1().StatefulSets(ns).Apply(ctx,
		applyapps.StatefulSet("a", ns).WithSpec(applyapps.StatefulSetSpec().WithServiceName("a").WithSelector(selector).WithTemplate(pod())), applyOptions)
	check("stateful set", set, err)
	job, err := client.BatchV1().Jobs(ns).Apply(ctx,
		applybatch.Job("a", ns).WithSpec(applybatch.JobSpec().WithParallelism(1).WithTemplate(once())), applyOptions)
	check("job", job, err)
	cron, err := client.BatchV1().CronJobs(ns).Apply(ctx,
		applybatch.CronJob("a", ns).WithSpec(applybatch.CronJobSpec().WithSchedule("* * * * *").WithJobTemplate(
			applybatch.JobTemplateSpec().WithSpec(applybatch.JobSpec().WithTemplate(once())),
		)), applyOptions)
	check("cron job", cron, err)
	role, err := client.RbacV1().Roles(ns).Apply(ctx,
		applyrbac.Role("a", ns).WithRules(applyrbac.PolicyRule().WithAPIGroups("").WithResources("pods").WithVerbs("get")), applyOptions)
	check("role", role, err)
	ingress, err := client.NetworkingV1().Ingresses(ns).Apply(ctx,
		applynetworking.Ingress("a", ns).WithSpec(applynetworking.IngressSpec().WithRules(
			applynetworking.IngressRule().WithHost("h.example.org").WithHTTP(applynetworking.HTTPIngressRuleValue().WithPaths(
				applynetworking.HTTPIngressPath().WithPath("/").WithPathType(networkingv1.PathTypePrefix).WithBackend(
					applynetworking.IngressBackend().WithService(applynetworking.IngressServiceBackend().WithName("a").WithPort(applynetworking.ServiceBackendPort().WithNumber(80))),
				),
			)),
		)), applyOptions)
	check("ingress", ingress, err)
	budget, err := client.PolicyV1().PodDisruptionBudgets(ns).Apply(ctx,
		applypolicy.PodDisruptionBudget("a", ns).WithSpec(applypolicy.PodDisruptionBudgetSpec().WithSelector(selector).WithMinAvailable(intstr.FromString("50%"))), applyOptions)
	check("disruption budget", budget, err)
	scaler, err := client.AutoscalingV2().HorizontalPodAutoscalers(ns).Apply(ctx,
		applyautoscaling.HorizontalPodAutoscaler("a", ns).WithSpec(applyautoscaling.HorizontalPodAutoscalerSpec().WithMaxReplicas(3).WithScaleTargetRef(
			applyautoscaling.CrossVersionObjectReference().WithAPIVersion("apps/v1").WithKind("Deployment").WithName("a"),
		)), applyOptions)
	check("autoscaler", scaler, err)
	if t.Failed() {
		return
	}
	checkExtractedApply(t, client, deployment)
	checkStatusApply(t, client)
}

// checkExtractedApply checks that the extracted configuration equals the applied one, and that
// applying it with fewer fields removes the others.
func checkExtractedApply(t *testing.T, client kubernetes.Interface, deployment *appsv1.Deployment) {
	t.Helper()
	deployments := client.AppsV1().Deployments(typedNamespace)
	config, err := applyapps.ExtractDeployment(deployment, "typed")
	if err != nil || config.Spec == nil || *config.Spec.Replicas != 2 ||
		*config.Spec.Template.Spec.Containers[0].Image != "c:1" || config.Spec.RevisionHistoryLimit != nil {
		t.Fatalf("extract: got %+v, %v, want 2 replicas of c:1, and no field of other managers", config.Spec, err)
	}
	config.Spec.Template.Spec.Containers[0].WithImage("c:2").Ports = nil
	deployment, err = deployments.Apply(t.Context(), config, typedOptions)
	if err != nil || deployment.Spec.Template.Spec.Containers[0].Image != "c:2" ||
		len(deployment.Spec.Template.Spec.Containers[0].Ports) != 0 {
		t.Fatalf("second apply: got %+v, %v, want image c:2 without ports", deployment.Spec, err)
	}
	same, err := deployments.Apply(t.Context(), config, typedOptions)
	if err != nil || same.ResourceVersion != deployment.ResourceVersion {
		t.Errorf("same apply again: got version %s, %v, want %s", same.ResourceVersion, err, deployment.ResourceVersion)
	}
}

// checkStatusApply checks that the status has its own field manager.
func checkStatusApply(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx := t.Context()
	deployments := client.AppsV1().Deployments(typedNamespace)
	status := applyapps.Deployment("a", typedNamespace).WithStatus(applyapps.DeploymentStatus().WithReplicas(2).WithConditions(
		applyapps.DeploymentCondition().WithType("Available").WithStatus(corev1.ConditionTrue),
	))
	deployment, err := deployments.ApplyStatus(ctx, status, typedOptions)
	if err != nil || deployment.Status.Replicas != 2 || len(deployment.ManagedFields) != 2 {
		t.Errorf("apply status: got %d replicas, managers %+v, %v, want 2 replicas and 2 managers",
			deployment.Status.Replicas, deployment.ManagedFields, err)
	}
	changed := status.WithStatus(applyapps.DeploymentStatus().WithReplicas(3))
	if _, err := deployments.ApplyStatus(ctx, changed, metav1.ApplyOptions{FieldManager: "other"}); !apierrors.IsConflict(err) {
		t.Errorf("apply status as another manager: got %v, want Conflict", err)
	}
	if _, err := deployments.ApplyStatus(ctx, applyapps.Deployment("absent", typedNamespace),
		typedOptions); !apierrors.IsNotFound(err) {
		t.Errorf("apply status of a missing object: got %v, want NotFound", err)
	}
}
