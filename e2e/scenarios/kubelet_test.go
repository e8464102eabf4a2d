package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/harness"
)

// TestKubectlReachesPods tests the kubectl commands that reach a pod's kubelet.
func TestKubectlReachesPods(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t, harness.WithKubelets())
	kubelet := harness.StartKubelet(t, server.PKI)
	cli, ctx, client := harness.NewCLI(t, server).WithNamespace("default"), t.Context(), server.Client()
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, kubelet.Node("n"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "p"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "x:1", Stdin: true}}},
	}
	pod, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  "c",
		Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	if _, err := client.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Run("logs", func(t *testing.T) {
		t.Parallel()
		expectParts(t, "logs", cli.Run(t, "logs", "p"), "line 0 of /containerLogs/default/p/c\n", "line 2 of")
		expectParts(t, "logs --tail", cli.Run(t, "logs", "p", "--tail=5"), "tail 5")
		bad := cli.Execute(t, "", "logs", "p", "-c", "other")
		expectParts(t, "logs of no container", bad.Stderr, "container other is not valid for pod p")
		expectParts(t, "describe pod", cli.Run(t, "describe", "pod", "p"), "Status:       Running", "Restart Count:  0")
		expectParts(t, "describe node", cli.Run(t, "describe", "node", "n"), "InternalIP:  127.0.0.1",
			"default                     p")
		expectParts(t, "proxy to the node", cli.Run(t, "get", "--raw", "/api/v1/nodes/n/proxy/healthz"), "kubelet is ok")
	})
	for name, websockets := range map[string]string{"websocket": "true", "spdy": "false"} {
		cli := cli.WithEnv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
		t.Run("exec over "+name, func(t *testing.T) {
			t.Parallel()
			if out := cli.Run(t, "exec", "p", "--", "echo", "a b"); out != "a b\n" {
				t.Errorf("echo: %q, want \"a b\\n\"", out)
			}
			if out := cli.RunWith(t, "from here", "exec", "-i", "p", "--", "cat"); out != "from here" {
				t.Errorf("cat: %q, want \"from here\"", out)
			}
			failed := cli.Execute(t, "", "exec", "p", "--", "sh", "-c", "echo bad >&2; exit 3")
			var exit *exec.ExitError
			if !errors.As(failed.Err, &exit) || exit.ExitCode() != 3 {
				t.Errorf("exit: %v", failed.Err)
			}
			expectParts(t, "stderr", failed.Stderr, "bad\n", "command terminated with exit code 3")
			if out := cli.RunWith(t, "attached", "attach", "-i", "p"); !strings.Contains(out, "attached") {
				t.Errorf("attach: got %q, want attached in it", out)
			}
		})
		t.Run("port-forward over "+name, func(t *testing.T) {
			t.Parallel()
			checkPortForward(t, cli)
		})
		t.Run("cp over "+name, func(t *testing.T) {
			t.Parallel()
			from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
			if err := os.WriteFile(from, []byte("some content"), 0o600); err != nil {
				t.Fatal(err)
			}
			cli.Run(t, "cp", from, "p:"+to)
			back := filepath.Join(t.TempDir(), "back")
			cli.Run(t, "cp", "p:"+to, back)
			if got, err := os.ReadFile(back); err != nil || string(got) != "some content" {
				t.Errorf("got %q, %v, want some content", got, err)
			}
		})
	}
}

// checkPortForward sends a request to a local server through kubectl port-forward.
func checkPortForward(t *testing.T, cli *harness.CLI) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "here ", r.URL.Path)
	}))
	defer target.Close()
	_, port, _ := net.SplitHostPort(target.Listener.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := cli.Command(ctx, "", "port-forward", "p", ":"+port, "--address=127.0.0.1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("port-forward: got no output, want the local port")
	}
	local := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(lines.Text())
	if local == nil {
		t.Fatalf("port-forward: got %q, want local set", lines.Text())
	}
	go func() { // so that its output does not block
		for lines.Scan() {
		}
	}()
	for i := range 3 {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%s/%d", local[1], i))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf("here /%d", i); err != nil || string(body) != want {
			t.Errorf("got %v %q, want %q", err, body, want)
		}
	}
}

// TestKubectlServices tests scale, expose and describe.
func TestKubectlServices(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	cli := harness.NewCLI(t, server)
	cli.Run(t, "create", "namespace", "s")
	cli = cli.WithNamespace("s")
	cli.Run(t, "create", "deployment", "web", "--image=x:1", "--port=80", "--replicas=2")
	cli.Run(t, "scale", "deployment", "web", "--replicas=5", "--current-replicas=2")
	if got := cli.Run(t, "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"); got != "5" {
		t.Errorf("got %s replicas", got)
	}
	cli.Run(t, "expose", "deployment", "web", "--type=NodePort", "--port=8080", "--target-port=80")
	expectParts(t, "get services", cli.Run(t, "get", "services"), "NodePort", "10.0.0.")
	described := cli.Run(t, "describe", "service", "web")
	for _, want := range []string{`(?m)^IP Family Policy: +SingleStack$`, `(?m)^IPs: +10\.0\.0\.\d+$`,
		`(?m)^NodePort: +<unset>  3\d{4}/TCP$`} {
		if !regexp.MustCompile(want).MatchString(described) {
			t.Errorf("want /%s/ in:\n%s", want, described)
		}
	}
	expectParts(t, "describe deployment", cli.Run(t, "describe", "deployment", "web"), "5 desired")
	cli.Run(t, "create", "serviceaccount", "a")
	if token := cli.Run(t, "create", "token", "a"); strings.Count(token, ".") != 2 {
		t.Errorf("token: got %q, want a JWT", token)
	}
	expectParts(t, "addresses", cli.Run(t, "get", "ipaddresses"), "services/default/kubernetes", "services/s/web")
	expectParts(t, "ranges", cli.Run(t, "get", "servicecidrs"), "kubernetes", harness.ServiceRange)
	cli.Run(t, "delete", "service", "web")
	if left := cli.Run(t, "get", "ipaddresses"); strings.Contains(left, "services/s/web") {
		t.Errorf("got addresses of a deleted service, want none:\n%s", left)
	}
}
