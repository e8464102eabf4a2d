package scenarios

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// hookServer is a webhook that allows everything. Requests to /hang get no response.
type hookServer struct {
	addr     string
	requests atomic.Int64
	stop     func()
}

// startHook starts a webhook with a certificate of pki, at addr unless that is empty.
func startHook(t *testing.T, pki *harness.PKI, addr string) *hookServer {
	t.Helper()
	pair := pki.Serving("hook")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	hook := &hookServer{addr: listener.Addr().String()}
	released := make(chan struct{})
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review struct{ Request struct{ UID string } }
			if json.NewDecoder(r.Body).Decode(&review) != nil {
				return // the API server reads only the response
			}
			hook.requests.Add(1)
			if r.URL.Path == "/hang" {
				<-released
			}
			fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
		}),
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(listener, "", "") }()
	stopped := false
	hook.stop = func() {
		if !stopped {
			stopped = true
			close(released)
			_ = server.Close()
			<-done
		}
	}
	t.Cleanup(hook.stop)
	return hook
}

func caBundle(t *testing.T, pki *harness.PKI) []byte {
	t.Helper()
	ca, err := os.ReadFile(pki.CA)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// webhookConfiguration returns a validating webhook for new ConfigMaps.
func webhookConfiguration(name, url string, data []byte,
	policy admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none, second := admissionregistrationv1.SideEffectClassNone, int32(2)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:           name + ".ex.test",
			ClientConfig:   admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: data},
			FailurePolicy:  &policy,
			TimeoutSeconds: &second,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{""},
					APIVersions: []string{"v1"},
					Resources:   []string{"configmaps"},
				},
			}},
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// hooked creates ConfigMaps in dry runs, so that each create calls the webhooks.
type hooked struct {
	t       *testing.T
	client  kubernetes.Interface
	created int
}

func (w *hooked) createObject() error {
	w.created++
	_, err := w.client.CoreV1().ConfigMaps("default").Create(w.t.Context(), configMap(fmt.Sprintf("hooked-%d", w.created), ""),
		metav1.CreateOptions{DryRun: []string{"All"}})
	return err
}

func (w *hooked) register(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) (remove func()) {
	w.t.Helper()
	configurations := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := configurations.Create(w.t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := configurations.Delete(w.t.Context(), configuration.Name, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	}
}

// TestWebhookServerChangesTakeEffect replaces the certificate of a webhook server and stops and
// restarts it. Each change affects only later requests.
func TestWebhookServerChangesTakeEffect(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	objects := &hooked{t: t, client: server.Client()}
	firstCA, secondCA := harness.NewPKI(t), harness.NewPKI(t)

	hook := startHook(t, firstCA, "")
	remove := objects.register(webhookConfiguration("rotated", "https://"+hook.addr+"/", caBundle(t, firstCA), admissionregistrationv1.Fail))
	if err := objects.createObject(); err != nil {
		t.Errorf("create with the first certificate: got error %v, want none", err)
	}
	hook.stop()
	hook = startHook(t, secondCA, hook.addr)
	err := objects.createObject()
	if err != nil && strings.Contains(err.Error(), "broken pipe") { // on the old connection
		err = objects.createObject()
	}
	if err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("with a certificate of another CA: got %v, want an x509 error", err)
	}
	patch, err := json.Marshal([]map[string]any{{
		"op":    "replace",
		"path":  "/webhooks/0/clientConfig/caBundle",
		"value": caBundle(t, secondCA),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objects.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), "rotated",
		types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := objects.createObject(); err != nil {
		t.Errorf("create with the second CA bundle: got error %v, want none", err)
	}

	hook.stop() // simulates a crash
	var lastErr error
	later := false
	for range 4 + 4 { // the first ones may use old connections and fail differently
		lastErr = objects.createObject()
		if !later {
			_, later = apierrors.SuggestsClientDelay(lastErr)
		}
	}
	if _, still := apierrors.SuggestsClientDelay(lastErr); !later || !still || !strings.Contains(lastErr.Error(),
		"connection refused") {
		t.Errorf("while the webhook is down: got %v", lastErr)
	}
	if _, err := objects.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list while the webhook is down: got error %v, want none", err)
	}
	hook = startHook(t, secondCA, hook.addr)
	harness.Eventually(t, time.Minute, "writes after the restart", objects.createObject)
	remove()

	for policy, passes := range map[admissionregistrationv1.FailurePolicyType]bool{admissionregistrationv1.Fail: false, admissionregistrationv1.Ignore: true} {
		remove := objects.register(webhookConfiguration("hangs", "https://"+hook.addr+"/hang", caBundle(t, secondCA), policy))
		if err := objects.createObject(); (err == nil) != passes ||
			err != nil && !strings.Contains(err.Error(), "context deadline exceeded") {
			t.Errorf("hanging webhook, %s: got %v", policy, err)
		}
		remove()
	}

	const many = 50
	for i := range many {
		objects.register(webhookConfiguration(fmt.Sprintf("many-%d", i), fmt.Sprintf("https://%s/%d", hook.addr, i),
			caBundle(t, secondCA), admissionregistrationv1.Fail))
	}
	before := hook.requests.Load()
	if err := objects.createObject(); err != nil || hook.requests.Load()-before != many {
		t.Errorf("%d webhooks: got %v and %d calls, want no error and %d calls", many, err,
			hook.requests.Load()-before, many)
	}
}

// TestUnreachableWebhooksDoNotPreventRepair configures webhooks for nearly everything. None
// runs, as after a power failure. The server must start, serve reads and log the cause, and an
// administrator must be able to remove the configurations.
func TestUnreachableWebhooksDoNotPreventRepair(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	clientset := server.Client()
	none, fail, ten := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(10)
	star := []string{"*"}
	rules := func(groups, resources []string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: star, Resources: resources},
		}}
	}
	// One service exists without endpoints, the other does not exist.
	createNamespace(t, clientset, "kueue-system")
	serviceConfig := func(namespace, name, path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			Service:  &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name, Path: &path},
			CABundle: caBundle(t, server.PKI),
		}
	}
	notIn := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key:      "cert-manager.io/disable-validation",
		Operator: metav1.LabelSelectorOpNotIn,
		Values:   []string{"true"},
	}}}
	if _, err := clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "cert-manager-webhook"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:                    "webhook.cert-manager.io",
				ClientConfig:            serviceConfig("cert-manager", "cert-manager-webhook", "/validate"),
				FailurePolicy:           &fail,
				TimeoutSeconds:          &ten,
				NamespaceSelector:       notIn,
				Rules:                   rules(star, []string{"*/*"}),
				SideEffects:             &none,
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clientset.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "kueue-mutating-webhook-configuration"}, Webhooks: []admissionregistrationv1.MutatingWebhook{
				{
					Name:                    "mpod.kb.io",
					ClientConfig:            serviceConfig("kueue-system", "kueue-webhook-service", "/mutate--v1-pod"),
					FailurePolicy:           &fail,
					TimeoutSeconds:          &ten,
					Rules:                   rules([]string{""}, []string{"pods", "configmaps"}),
					SideEffects:             &none,
					AdmissionReviewVersions: []string{"v1"},
				},
				{
					Name:                    "mjob.kb.io",
					ClientConfig:            serviceConfig("kueue-system", "kueue-webhook-service", "/mutate-batch-v1-job"),
					FailurePolicy:           &fail,
					TimeoutSeconds:          &ten,
					Rules:                   rules([]string{"batch"}, []string{"jobs"}),
					SideEffects:             &none,
					AdmissionReviewVersions: []string{"v1"},
				},
			},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	server.Restart() // waits until it is ready
	if _, err := clientset.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list without webhooks: got error %v, want none", err)
	}
	for range 3 { // the circuit breaker rejects the next ones, and clients retry those
		var status *apierrors.StatusError
		_, err := clientset.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("x", ""), metav1.CreateOptions{})
		if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusInternalServerError ||
			!strings.Contains(err.Error(), "mpod.kb.io") {
			t.Errorf("create without webhooks: got %v, want status 500 that names mpod.kb.io", err)
		}
	}
	// One line names the cause. It is logged asynchronously.
	harness.Eventually(t, time.Minute, "the configuration in the log", func() error {
		lines := 0
		for line := range strings.Lines(server.Log()) {
			if strings.Contains(line, "admission webhook unreachable; not called until it responds") &&
				strings.Contains(line, "kueue-mutating-webhook-configuration") {
				lines++
			}
		}
		if lines != 1 {
			return fmt.Errorf("got %d lines", lines)
		}
		return nil
	})
	if err := clientset.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(t.Context(),
		"kueue-mutating-webhook-configuration", metav1.DeleteOptions{}); err != nil {
		t.Errorf("repair: %v", err)
	}
	if err := clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(),
		"cert-manager-webhook", metav1.DeleteOptions{}); err != nil {
		t.Errorf("repair: %v", err)
	}
	if _, err := clientset.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("x", ""), metav1.CreateOptions{}); err != nil {
		t.Errorf("create after the repair: got error %v, want none", err)
	}
}
