package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// gcWidgets defines a resource of objects of any content.
const gcWidgets = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.controllers.example.com}, spec: {
  group: controllers.example.com, scope: Namespaced, names: {kind: Widget, plural: widgets, singular: widget},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

// brokenService is an APIService without a server.
const brokenService = `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.broken.example.com}, spec: {
  group: broken.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 10, insecureSkipTLSVerify: true,
  service: {name: none, namespace: default}}}`

// controllersSettle bounds each wait for a controller.
const controllersSettle = 90 * time.Second

// TestControlPlaneIsWholeWithoutKubeControllerManager runs the controllers service as the suite's
// own user, against a server that requires service accounts.
func TestControlPlaneIsWholeWithoutKubeControllerManager(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t, harness.WithServiceAccounts())
	r := startControllerFor(t, server, harness.Controllers, "system:binnacle")
	harness.Eventually(t, controllersSettle, "the controllers are ready", r.checkReady)
	client, cli := server.Client(), harness.NewCLI(t, server)
	cli.RunWith(t, gcWidgets, "apply", "-f", "-")
	cli.Run(t, "wait", "--for=condition=Established", "crd/widgets.controllers.example.com")

	t.Run("service account", func(t *testing.T) { checkDefaultServiceAccount(t, client, cli) })
	t.Run("quota", func(t *testing.T) { checkQuotaStatus(t, client) })
	for policy, want := range map[string]string{
		"background": "",
		"foreground": "",
		"orphan":     "configmap/child\nwidget.controllers.example.com/child\nsecret/grandchild",
	} {
		t.Run(policy, func(t *testing.T) { checkDeletionPolicy(t, client, cli, policy, want) })
	}
	t.Run("namespace", func(t *testing.T) { checkNamespaceDeletion(t, client, cli) })
}

// checkDefaultServiceAccount checks that a new namespace has what pods need.
func checkDefaultServiceAccount(t *testing.T, client kubernetes.Interface, cli *harness.CLI) {
	createNamespace(t, client, "accounts")
	harness.Eventually(t, controllersSettle, "the default service account", func() error {
		_, err := client.CoreV1().ServiceAccounts("accounts").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	if token := cli.Run(t, "create", "token", "default", "-n", "accounts"); strings.Count(token, ".") != 2 {
		t.Errorf("got token %q, want a JWT", token)
	}
	harness.Eventually(t, controllersSettle, "the CA of the server", func() error {
		m, err := client.CoreV1().ConfigMaps("accounts").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && !strings.Contains(m.Data["ca.crt"], "BEGIN CERTIFICATE") {
			err = fmt.Errorf("it contains %q", m.Data)
		}
		return err
	})
	if err := client.CoreV1().ServiceAccounts("accounts").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, controllersSettle, "the pod of a service account that was deleted", func() error {
		_, err := client.CoreV1().Pods("accounts").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		return err
	})
}

// checkQuotaStatus checks that a quota does not block writes, and releases what is deleted.
func checkQuotaStatus(t *testing.T, client kubernetes.Interface) {
	createNamespace(t, client, "limited")
	hard := corev1.ResourceList{
		"count/widgets.controllers.example.com": resource.MustParse("2"),
		"secrets":                               resource.MustParse("1"),
		"pods":                                  resource.MustParse("3"),
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if _, err := client.CoreV1().ResourceQuotas("limited").Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, controllersSettle, "the status of the quota", func() error {
		got, err := client.CoreV1().ResourceQuotas("limited").Get(t.Context(), "q", metav1.GetOptions{})
		if err == nil && len(got.Status.Hard) < len(hard) {
			err = fmt.Errorf("got status %v", got.Status)
		}
		return err
	})
	secrets := client.CoreV1().Secrets("limited")
	create := func(name string) error {
		_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	harness.Eventually(t, controllersSettle, "a secret within the quota", func() error { return create("one") })
	if err := create("two"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q") {
		t.Errorf("beyond the quota: %v", err)
	}
	if err := secrets.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, controllersSettle, "a secret in place of a deleted one", func() error { return create("two") })
}

// checkDeletionPolicy checks what is left of an owner's dependents, of several resources, and of
// theirs.
func checkDeletionPolicy(t *testing.T, client kubernetes.Interface, cli *harness.CLI, policy, want string) {
	namespace := "policy-" + policy
	createNamespace(t, client, namespace)
	cli = cli.WithNamespace(namespace)
	uid := func(name string) string { return cli.Run(t, "get", name, "-o", "jsonpath={.metadata.uid}") }
	dependent := func(apiVersion, kind, name, ownerVersion, ownerKind, owner, uid string) {
		cli.RunWith(t, fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {name: %s, ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s, blockOwnerDeletion: true}]}}`,
			apiVersion, kind, name, ownerVersion, ownerKind, owner, uid), "create", "-f", "-")
	}
	cli.Run(t, "create", "configmap", "owner")
	dependent("v1", "ConfigMap", "child", "v1", "ConfigMap", "owner", uid("cm/owner"))
	dependent("controllers.example.com/v1", "Widget", "child", "v1", "ConfigMap", "owner", uid("cm/owner"))
	dependent("v1", "Secret", "grandchild", "controllers.example.com/v1", "Widget", "child", uid("widget/child"))
	cli.Run(t, "delete", "cm", "owner", "--cascade="+policy, "--timeout=60s")
	harness.Eventually(t, controllersSettle, "the dependents", func() error {
		got := cli.Run(t, "get", "cm,widgets,secrets", "-o", "name", "--field-selector=metadata.name!=kube-root-ca.crt")
		if got := strings.TrimSpace(got); got != want {
			return fmt.Errorf("left: %q", got)
		}
		return nil
	})
}

// checkNamespaceDeletion checks a namespace with mixed content, a finalizer and an API without a
// server.
func checkNamespaceDeletion(t *testing.T, client kubernetes.Interface, cli *harness.CLI) {
	createNamespace(t, client, "doomed")
	held := configMap("held", "")
	held.Finalizers = []string{"example.com/hold"}
	if _, err := client.CoreV1().ConfigMaps("doomed").Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cli.WithNamespace("doomed").RunWith(t,
		"{apiVersion: controllers.example.com/v1, kind: Widget, metadata: {name: w}}", "create", "-f", "-")
	cli.WithNamespace("doomed").Run(t, "create", "deployment", "d", "--image=i")
	cli.RunWith(t, brokenService, "apply", "-f", "-")
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "doomed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, controllersSettle, "the conditions", func() error {
		return checkConditions(t, client, "doomed", map[corev1.NamespaceConditionType]string{
			corev1.NamespaceDeletionDiscoveryFailure: "True DiscoveryFailed Discovery failed for some groups, 1 failing: ",
			corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions All legacy kube types successfully parsed",
			corev1.NamespaceDeletionContentFailure:   "False ContentDeleted All content successfully deleted, may be waiting on finalization",
			corev1.NamespaceContentRemaining:         "True SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances",
			corev1.NamespaceFinalizersRemaining:      "True SomeFinalizersRemain Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
		})
	})
	cli.Run(t, "delete", "apiservice", "v1.broken.example.com")
	cli.WithNamespace("doomed").Run(t, "patch", "cm", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	harness.Eventually(t, controllersSettle, "the end of the namespace", func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "doomed", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it exists"))
	})
}

// checkConditions compares the conditions of a namespace: status, reason and the beginning of the
// message.
func checkConditions(t *testing.T, client kubernetes.Interface, name string,
	want map[corev1.NamespaceConditionType]string) error {
	namespace, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(namespace.Status.Conditions) != len(want) {
		return fmt.Errorf("%d conditions", len(namespace.Status.Conditions))
	}
	for _, c := range namespace.Status.Conditions {
		if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); !strings.HasPrefix(got, want[c.Type]) {
			return fmt.Errorf("%s: %s", c.Type, got)
		}
	}
	return nil
}
