package scenarios

import (
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func serviceAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: objectMeta(name)}
}

// revocable is a credential and its revocation.
type revocable struct {
	name   string
	token  func(t *testing.T, admin kubernetes.Interface) string
	revoke func(t *testing.T, admin kubernetes.Interface) error
}

// boundTokenOf returns a token that is bound to an object.
func boundTokenOf(kind, name string) func(*testing.T, kubernetes.Interface) string {
	return func(t *testing.T, admin kubernetes.Interface) string {
		return createToken(t, admin, "robot", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name})
	}
}

// revocableTokens returns tokens and the changes that revoke them.
func revocableTokens() []revocable {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	bootstrap := func(token string) func(*testing.T, kubernetes.Interface) string {
		return func(t *testing.T, admin kubernetes.Interface) string {
			id, secret, _ := strings.Cut(token, ".")
			s := &corev1.Secret{
				ObjectMeta: objectMeta("bootstrap-token-" + id), Type: "bootstrap.kubernetes.io/token",
				StringData: map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"},
			}
			if _, err := admin.CoreV1().Secrets("kube-system").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			return token
		}
	}
	return []revocable{
		{name: "a deleted pod", token: boundTokenOf("Pod", "pod"), revoke: func(t *testing.T, client kubernetes.Interface) error {
			return client.CoreV1().Pods("default").Delete(t.Context(), "pod", now)
		}},
		{
			name:  "a deleted secret",
			token: boundTokenOf("Secret", "secret"),
			revoke: func(t *testing.T, client kubernetes.Interface) error {
				return client.CoreV1().Secrets("default").Delete(t.Context(), "secret", now)
			},
		},
		{name: "a deleted node", token: boundTokenOf("Node", "node"), revoke: func(t *testing.T, client kubernetes.Interface) error {
			return client.CoreV1().Nodes().Delete(t.Context(), "node", now)
		}},
		{
			name:  "a deleted bootstrap token",
			token: bootstrap("aaaaaa.0123456789abcdef"),
			revoke: func(t *testing.T, client kubernetes.Interface) error {
				return client.CoreV1().Secrets("kube-system").Delete(t.Context(), "bootstrap-token-aaaaaa", now)
			},
		},
		{
			name:  "a changed bootstrap token",
			token: bootstrap("bbbbbb.0123456789abcdef"),
			revoke: func(t *testing.T, client kubernetes.Interface) error {
				s, err := client.CoreV1().Secrets("kube-system").Get(t.Context(), "bootstrap-token-bbbbbb", metav1.GetOptions{})
				if err != nil {
					return err
				}
				s.Data["token-secret"] = []byte("fedcba9876543210")
				_, err = client.CoreV1().Secrets("kube-system").Update(t.Context(), s, metav1.UpdateOptions{})
				return err
			},
		},
		{
			name:  "a recreated account",
			token: func(t *testing.T, client kubernetes.Interface) string { return createToken(t, client, "robot", nil) },
			revoke: func(t *testing.T, client kubernetes.Interface) error {
				if err := client.CoreV1().ServiceAccounts("default").Delete(t.Context(), "robot", now); err != nil {
					return err
				}
				_, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), serviceAccount("robot"),
					metav1.CreateOptions{})
				return err
			},
		},
		{
			name:  "a deleted account",
			token: func(t *testing.T, client kubernetes.Interface) string { return createToken(t, client, "robot", nil) },
			revoke: func(t *testing.T, client kubernetes.Interface) error {
				return client.CoreV1().ServiceAccounts("default").Delete(t.Context(), "robot", now)
			},
		},
	}
}

// TestRevokedCredentialsAreRejectedByEachReplica revokes credentials at one replica of the API
// server. The other replica, which has cached them, must reject them, too.
func TestRevokedCredentialsAreRejectedByEachReplica(t *testing.T) {
	t.Parallel()
	port := harness.FreePort(t)
	etcd, nats := harness.StartEtcd(t), harness.StartNATS(t, 1)[0]
	shared := []harness.Option{
		harness.WithTokenService(port), harness.WithEtcd(etcd),
		harness.WithFlags("--nats-servers=nats://"+nats.Addr, "--cluster-id=revocation"),
	}
	one := harness.StartServer(t, shared...)
	other := one.StartReplica(shared...)
	one.StartTokenService(port)
	admin := one.Client()
	createAccount(t, admin, "robot")
	core := admin.CoreV1()
	_, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: objectMeta("node")}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = core.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: objectMeta("secret")},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: objectMeta("pod"), Spec: corev1.PodSpec{
		ServiceAccountName: "robot", NodeName: "elsewhere", Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
	if _, err = core.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	at := map[string]*tokenClient{"the same replica": newTokenClient(t, one), "the other replica": newTokenClient(t, other)}
	for _, revocable := range revocableTokens() {
		t.Run(revocable.name, func(t *testing.T) {
			token := revocable.token(t, admin)
			for where, b := range at {
				harness.Eventually(t, settleTimeout, "acceptance by "+where, func() error {
					return b.checkStatus(t, token, http.StatusCreated)
				})
			}
			if err := revocable.revoke(t, admin); err != nil {
				t.Fatal(err)
			}
			acknowledged := time.Now()
			for where, b := range at {
				harness.Eventually(t, settleTimeout, "rejection by "+where, func() error {
					return b.checkStatus(t, token, http.StatusUnauthorized)
				})
				t.Logf("rejected by %s %v after the acknowledgement", where, time.Since(acknowledged).Round(100*time.Microsecond))
			}
		})
	}
}
