package scenarios

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"binnacle/e2e/harness"
)

// assetFolder creates a folder with the API server under the name that envtest expects.
func assetFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, p := range map[string]harness.Program{
		"kube-apiserver": harness.APIServer, "etcd": harness.EtcdServer, "kubectl": harness.Kubectl,
	} {
		// A copy instead of a link, because installations copy the file.
		raw, err := os.ReadFile(harness.Binary(t, p))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestServerMeetsEnvtestContract starts the server with exactly envtest's flags and checks what
// envtest relies on.
func TestServerMeetsEnvtestContract(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(assetFolder(t), "kube-apiserver")
	if out, err := exec.Command(binary, "--help").CombinedOutput(); err != nil || len(out) == 0 {
		t.Fatalf("--help: %v\n%s", err, out)
	}
	etcd, pki, port := harness.StartEtcd(t), harness.NewPKI(t), harness.FreePort(t)
	admin := pki.Client("admin", harness.SystemMasters)
	signer := pki.Signer("sa")
	certDir := t.TempDir()
	// envtest creates the serving certificate under this name.
	serving := pki.Serving("apiserver")
	for from, to := range map[string]string{serving.CertFile: "apiserver.crt", serving.KeyFile: "apiserver.key"} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(certDir, to), raw, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	url := "https://127.0.0.1:" + strconv.Itoa(port)
	process := harness.NewProcess(t, "kube-apiserver", binary)
	process.Start(
		"--etcd-servers="+etcd.Endpoint, "--cert-dir="+certDir, "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
		"--client-ca-file="+pki.CA, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer="+url+"/", "--service-account-key-file="+signer.CertFile,
		"--service-account-signing-key-file="+signer.KeyFile,
	)
	// Anonymous, and with a certificate of an unknown CA.
	anonymous := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	harness.Eventually(t, 20*time.Second, "healthz", func() error {
		resp, err := anonymous.Get(url + "/healthz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != "ok" {
			return fmt.Errorf("%s %q %v", resp.Status, body, err)
		}
		return nil
	})
	// The certificate in --cert-dir is used.
	config := &rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAFile: pki.CA, CertData: admin.Cert, KeyData: admin.Key},
	}
	clientset := harness.ClientFor(t, config)
	harness.Eventually(t, 5*time.Second, "namespace default", func() error {
		_, err := clientset.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
	// Pods need no service account if the plugin is disabled.
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := clientset.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	stranger := pki.Client("stranger")
	config.CertData, config.KeyData = stranger.Cert, stranger.Key
	if _, err := harness.ClientFor(t, config).CoreV1().Pods("").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("user without roles: got %v, want Forbidden", err)
	}
	if err := process.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

// TestControllerRuntime runs controller-runtime's envtest with the API server, and a manager with a
// controller.
func TestControllerRuntime(t *testing.T) {
	dir := assetFolder(t)
	t.Setenv("TEST_ASSET_KUBE_APISERVER", filepath.Join(dir, "kube-apiserver"))
	t.Setenv("TEST_ASSET_ETCD", filepath.Join(dir, "etcd"))
	t.Setenv("TEST_ASSET_KUBECTL", filepath.Join(dir, "kubectl"))
	environment, config := startEnvtest(t)
	reader, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	user, err := environment.AddUser(envtest.User{Name: "ada", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if kubectl, err := user.Kubectl(); err != nil {
		t.Error(err)
	} else if stdout, stderr, err := kubectl.Run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); err != nil {
		t.Errorf("kubectl auth whoami: got error %v: %v, want none", err, stderr)
	} else if b, err := io.ReadAll(stdout); err != nil || string(b) != "ada" {
		t.Errorf("whoami: got %q, %v, want ada", b, err)
	}
	startCopier(t, config)
	testCopier(t, reader)
}

// startEnvtest starts controller-runtime's envtest like tests of operators.
func startEnvtest(t *testing.T, configure ...func(*envtest.APIServer)) (*envtest.Environment, *rest.Config) {
	t.Helper()
	log.SetLogger(logr.Discard())
	var output harness.Buffer
	environment := &envtest.Environment{AttachControlPlaneOutput: false}
	environment.ControlPlane.GetAPIServer().Out, environment.ControlPlane.GetAPIServer().Err = &output, &output
	for _, c := range configure {
		c(environment.ControlPlane.GetAPIServer())
	}
	start := time.Now()
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	t.Logf("envtest started after %s", time.Since(start).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop of envtest: got error %v, want none", err)
		}
		if t.Failed() {
			t.Log(output.String())
		}
	})
	return environment, config
}

// useMemoryStore configures envtest's API server as docs/user/envtest.md describes.
func useMemoryStore(s *envtest.APIServer) {
	s.Configure().Disable("etcd-servers").Append("storage-backend", "memory")
}

// TestEnvtestAssets starts envtest from folders as docs/user/envtest.md describes: created by make,
// and with links to the binary with all services, with the memory store.
func TestEnvtestAssets(t *testing.T) {
	made, links := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "envtest", "ENVTEST="+made)
	cmd.Dir = harness.Project(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make envtest: %v\n%s", err, out)
	} else if want := "export KUBEBUILDER_ASSETS=" + made; !strings.Contains(string(out), want) {
		t.Errorf("make envtest: want %q in:\n%s", want, out)
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := os.Symlink(harness.Binary(t, harness.Everything), filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	for what, test := range map[string]struct {
		dir       string
		configure []func(*envtest.APIServer)
	}{
		"folder created by make": {dir: made},
		"folder with links":      {dir: links},
		"memory store":           {dir: made, configure: []func(*envtest.APIServer){useMemoryStore}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", test.dir)
			environment, config := startEnvtest(t, test.configure...)
			api, err := client.New(config, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m := configMap("made", "by envtest")
			m.Namespace = metav1.NamespaceDefault
			if err := api.Create(t.Context(), m); err != nil {
				t.Error(err)
			}
			if what == "folder with links" {
				return // no kubectl
			}
			user, err := environment.AddUser(envtest.User{Name: "ada", Groups: []string{"system:masters"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			kubectl, err := user.Kubectl()
			if err != nil {
				t.Fatal(err)
			}
			if stdout, stderr, err := kubectl.Run("get", "configmap", "made", "-o", "name"); err != nil {
				t.Errorf("kubectl get: got error %v, output %v %v, want no error", err, stdout, stderr)
			}
		})
	}
}

// copier is a controller that copies each selected ConfigMap into a Secret, with an owner reference
// and a finalizer.
type copier struct {
	client.Client
	events record.EventRecorder
}

const (
	copyLabel     = "e2e/copy"
	copyFinalizer = "e2e.example.org/copy"
)

// Reconcile implements reconcile.Reconciler.
func (c *copier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var source corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if source.Labels[copyLabel] == "" {
		return ctrl.Result{}, nil
	}
	made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	if !source.DeletionTimestamp.IsZero() {
		if err := c.Delete(ctx, made); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		if controllerutil.RemoveFinalizer(&source, copyFinalizer) {
			return ctrl.Result{}, c.Update(ctx, &source)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&source, copyFinalizer) {
		return ctrl.Result{}, c.Update(ctx, &source)
	}
	result, err := controllerutil.CreateOrUpdate(ctx, c.Client, made, func() error {
		made.Data = map[string][]byte{"value": []byte(source.Data["value"])}
		return controllerutil.SetControllerReference(&source, made, c.Scheme())
	})
	if err == nil && result == controllerutil.OperationResultCreated {
		c.events.Event(&source, corev1.EventTypeNormal, "Copied", "made a secret")
	}
	return ctrl.Result{}, err
}

var _ reconcile.Reconciler = (*copier)(nil)

// startCopier starts a manager with the controller.
func startCopier(t *testing.T, config *rest.Config) {
	t.Helper()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "copier",
		LeaderElectionNamespace:       metav1.NamespaceDefault,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
		Complete(&copier{Client: manager.GetClient(), events: manager.GetEventRecorderFor("copier")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Start() of the manager = %v, want nil", err)
		}
	})
}

// testCopier checks that the copy follows its source and that both are deleted together.
func testCopier(t *testing.T, c client.Client) {
	t.Helper()
	const wait = 30 * time.Second
	ctx := t.Context()
	source := configMap("source", "one")
	source.Namespace, source.Labels = metav1.NamespaceDefault, map[string]string{copyLabel: "yes"}
	if err := c.Create(ctx, source); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(source)
	holds := func(want string) func() error {
		return func() error {
			var secret corev1.Secret
			if err := c.Get(ctx, key, &secret); err != nil {
				return err
			}
			if string(secret.Data["value"]) != want || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != source.UID {
				return fmt.Errorf("got %q of %v, want %q", secret.Data["value"], secret.OwnerReferences, want)
			}
			return nil
		}
	}
	harness.Eventually(t, wait, "the copy", holds("one"))
	if err := c.Patch(ctx, source,
		client.RawPatch("application/merge-patch+json", []byte(`{"data":{"value":"two"}}`))); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, wait, "the changed copy", holds("two"))
	// The controller recreates a deleted copy.
	if err := c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, wait, "the copy again", holds("two"))
	var events corev1.EventList
	harness.Eventually(t, wait, "the event", func() error {
		if err := c.List(ctx, &events, client.InNamespace(key.Namespace), client.MatchingFields{"reason": "Copied"}); err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return fmt.Errorf("no event")
		}
		return nil
	})
	if err := c.Delete(ctx, source); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, wait, "removal of both", func() error {
		for _, o := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
			if err := c.Get(ctx, key, o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T: %v", o, err)
			}
		}
		return nil
	})
}
