package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
)

// TestDeployedPodsServe runs the pods of rendered manifests and charts as processes, with their own
// command lines, files and probes: one replica of each service, and all members of etcd and NATS.
func TestDeployedPodsServe(t *testing.T) {
	t.Parallel()
	certs, path := createCertificates(t)
	secrets, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kubectl := harness.CLIOf(t, os.DevNull)
	overlay := func(t *testing.T, resource string, components ...string) string {
		return kubectl.Run(t, "kustomize", writeKustomization(t, resource, components...)) + string(secrets)
	}
	chart := func(t *testing.T, values string) string {
		text, err := runHelm(t, "template", "binnacle", values)
		if err != nil {
			t.Fatal(err)
		}
		return text + "\n"
	}
	for name, render := range map[string]func(t *testing.T) string{
		"overlay single": func(t *testing.T) string { return overlay(t, "overlays/single") },
		"overlay ha with components": func(t *testing.T) string {
			return overlay(t, "overlays/ha", "components/backup", "components/rbac-fallback")
		},
		"chart with a cluster": func(t *testing.T) string {
			return chart(t, "{console: {enabled: true}, backup: {enabled: true}, authorization: {fallback: true}}") +
				string(secrets)
		},
		"chart with embedded etcd and cert-manager": func(t *testing.T) string {
			return chart(t, "{etcd: {mode: embedded}, nats: {mode: none}, apiserver: {replicas: 1}, certificates: {mode: cert-manager}, console: {enabled: true}}")
		},
		"chart with a cluster and cert-manager, without webhook services": func(t *testing.T) string {
			return chart(t, "{authnWebhook: {enabled: false}, authzWebhook: {enabled: false}, backup: {enabled: true}, certificates: {mode: cert-manager}}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			podSet := newPodSet(t, parseObjects(t, render(t)))
			podSet.startPods()
			podSet.checkConsole(podSet.checkRequests(certs))
			for _, p := range podSet.jobs {
				podSet.checkBackup(p)
			}
			podSet.stopPods()
		})
	}
}

// writeKustomization creates a kustomization of folders of deploy/manifests and returns its folder.
func writeKustomization(t *testing.T, resource string, components ...string) string {
	t.Helper()
	// A kustomization finds others by relative paths only.
	own, err := os.MkdirTemp(filepath.Join(harness.Project(t), "bin"), "components")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(own) })
	const manifests = "../../deploy/manifests/"
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: binnacle\nresources: [" +
		manifests + resource + "]\ncomponents:\n"
	for _, c := range components {
		text += "- " + manifests + c + "\n"
	}
	if err := os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return own
}

// checkRequests checks that a service account may do what its roles allow, and nothing else. The
// webhook services, where there are any, review its token and authorize it. certs is the folder
// with the certificate of the administrator. The result is the token, which may get metrics.
func (s *podSet) checkRequests(certs string) string {
	t, ctx := s.t, s.t.Context()
	t.Helper()
	// The pods verify this server with the CA of their kubeconfigs.
	config := rest.Config{
		Host:            "https://" + s.targets["apiserver:6443"].local,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
	asAdmin, asRobot := config, config
	if admin := s.secrets["admin"]; admin != nil { // of cert-manager
		asAdmin.CertData, asAdmin.KeyData = admin[corev1.TLSCertKey], admin[corev1.TLSPrivateKeyKey]
	} else {
		asAdmin.CertFile, asAdmin.KeyFile = filepath.Join(certs, "admin", "admin.crt"), filepath.Join(certs, "admin", "admin.key")
	}
	asRobot.BearerToken = createRobot(t, harness.ClientFor(t, &asAdmin))
	robot := harness.ClientFor(t, &asRobot)
	harness.Eventually(t, time.Minute, "a service account lists config maps", func() error {
		_, err := robot.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := robot.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a service account lists secrets: got %v, want Forbidden", err)
	}
	if _, ok := s.targets["nats:4222"]; ok {
		harness.Eventually(t, time.Minute, "the API server connects to NATS", func() error {
			metrics, err := robot.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if err == nil && !bytes.Contains(metrics, []byte("\nbinnacle_fanout_connected 1\n")) {
				err = errors.New("not connected")
			}
			return err
		})
	}
	for _, p := range s.stores {
		if strings.Contains(p.Log(), "Violation") {
			t.Errorf("%s denies the API server a subject, want all allowed", p.name)
		}
	}
	return asRobot.BearerToken
}

// createRobot creates a service account that may view the namespace default and get metrics, and
// returns its token.
func createRobot(t *testing.T, admin *kubernetes.Clientset) string {
	t.Helper()
	ctx, objectMeta := t.Context(), metav1.ObjectMeta{Name: "robot"}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "default"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings("default").Create(ctx,
		&rbacv1.RoleBinding{ObjectMeta: objectMeta, RoleRef: role("view"), Subjects: subjects}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx,
		&rbacv1.ClusterRoleBinding{ObjectMeta: objectMeta, RoleRef: role("system:monitoring"), Subjects: subjects},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// checkConsole checks that the console, where there is one, reaches all other services.
func (s *podSet) checkConsole(token string) {
	s.t.Helper()
	console, ok := s.targets["console:6448"]
	if !ok {
		return
	}
	harness.Eventually(s.t, time.Minute, "the console shows that all services are ready", func() error {
		_, state := consoleState(s.t, "https://"+console.local, token)
		for _, r := range state.Replicas {
			if !r.Ready || r.Error != "" {
				return fmt.Errorf("got %+v", r)
			}
		}
		if want := len(s.services) - 1; len(state.Replicas) != want {
			return fmt.Errorf("got %d replicas, want %d", len(state.Replicas), want)
		}
		return nil
	})
}

// checkBackup runs the pod of etcd-backup and checks that it saves a snapshot.
func (s *podSet) checkBackup(p *pod) {
	s.t.Helper()
	p.Start(s.containerArgs(p)...)
	harness.Eventually(s.t, time.Minute, p.name+" ends", func() error {
		if p.Running() {
			return fmt.Errorf("%s runs", p.name)
		}
		return nil
	})
	if saved, err := filepath.Glob(filepath.Join(p.dir, "backup", "*")); err != nil || len(saved) != 1 {
		s.t.Errorf("%s: got files %v, %v, want a snapshot and no error", p.name, saved, err)
	}
}
