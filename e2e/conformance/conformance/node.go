package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	nodeName      = "conformance-node"
	podNetwork    = "10.64.0.0/24"
	podBridge     = "conformance0"
	containerdNS  = "k8s.io" // the namespace of containerd that kubelet's containers are in
	nodeTimeout   = 3 * time.Minute
	kubeletSigner = "kubernetes.io/kubelet-serving"
)

// node is this machine as a node of the cluster: containerd, kubelet and kube-proxy.
type node struct {
	c       *cluster
	client  kubernetes.Interface
	dir     string
	address string
}

// startNode starts a node that joins the cluster by TLS bootstrap, and waits until it is ready.
func startNode(c *cluster, client kubernetes.Interface, address string) error {
	n := &node{c: c, client: client, dir: filepath.Join(c.dir, "node"), address: address}
	if err := os.MkdirAll(filepath.Join(n.dir, "cni"), 0o755); err != nil {
		return err
	}
	if err := n.startContainerd(); err != nil {
		return err
	}
	c.stops = append(c.stops, n.removeContainers)
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("list the commands of busybox: %w", err)
	}
	for _, i := range n.images(strings.Fields(string(applets))) {
		if err := n.load(i); err != nil {
			return err
		}
	}
	if err := n.permit(); err != nil {
		return err
	}
	if err := n.startKubelet(); err != nil {
		return err
	}
	if err := eventually(c.ctx, nodeTimeout, "the certificates of the kubelet", n.approve); err != nil {
		return err
	}
	if err := eventually(c.ctx, nodeTimeout, "the node is ready", n.ready); err != nil {
		return err
	}
	return n.startProxy()
}

func (n *node) path(names ...string) string {
	return filepath.Join(append([]string{n.dir}, names...)...)
}
func (n *node) socket() string { return n.path("containerd.sock") }

func (n *node) write(name, text string) error { return os.WriteFile(n.path(name), []byte(text), 0o600) }

func (n *node) startContainerd() error {
	err := errors.Join(n.write("containerd.toml", fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, n.path("containerd"), n.path("run"), n.socket(), cniPlugins, n.path("cni"))),
		n.write("cni/10-bridge.conflist", fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "conformance", "plugins": [
  {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": %q}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, podBridge, podNetwork, n.path("addresses"))))
	if err != nil {
		return err
	}
	if err := n.c.start("containerd", "containerd", "--config="+n.path("containerd.toml")); err != nil {
		return err
	}
	return eventually(n.c.ctx, nodeTimeout, "containerd is ready", func(context.Context) error {
		_, err := n.ctr("version")
		return err
	})
}

// ctr runs a command of containerd's client. It runs during cleanup, too.
func (n *node) ctr(args ...string) (string, error) {
	out, err := exec.Command("ctr",
		append([]string{"--address=" + n.socket(), "--namespace=" + containerdNS}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// images returns the images of most specs. Web servers of several versions are the same one of
// agnhost. Applets are the commands of busybox.
func (n *node) images(applets []string) []image {
	agnhost := imageFile{path: "/agnhost", source: n.c.tool("agnhost")}
	shell := []imageFile{{path: "/bin/busybox", source: busybox}}
	for _, applet := range applets {
		if applet != "busybox" {
			shell = append(shell, imageFile{path: "/bin/" + applet, link: "busybox"})
		}
	}
	tool := append([]imageFile{agnhost, {path: "/agnhost-2", link: "agnhost"}}, shell...)
	const registry = "registry.k8s.io/e2e-test-images/"
	web := []string{registry + "httpd:2.4.38-4", registry + "httpd:2.4.39-4", registry + "nginx:1.14-4",
		registry + "nginx:1.15-4"}
	return []image{
		{names: []string{"registry.k8s.io/pause:3.10"}, files: []imageFile{agnhost}, entrypoint: []string{"/agnhost", "pause"}},
		{names: []string{registry + "agnhost:2.53"}, files: tool, entrypoint: []string{"/agnhost"}, command: []string{"pause"}},
		{names: []string{registry + "busybox:1.36.1-1"}, files: shell, command: []string{"sh"}},
		{names: web, files: tool, entrypoint: []string{"/agnhost", "test-webserver"}},
	}
}

// load imports an image.
func (n *node) load(i image) error {
	file, err := os.Create(n.path("image.tar"))
	if err != nil {
		return err
	}
	if err := errors.Join(i.write(file), file.Close()); err != nil {
		return err
	}
	_, err = n.ctr("images", "import", file.Name())
	return err
}

func (n *node) startKubelet() error {
	if err := n.c.writeBootstrapKubeconfig(n.path("bootstrap.kubeconfig")); err != nil {
		return err
	}
	// The kubelet needs a capability to lower its OOM score, which not every root has.
	err := n.write("kubelet.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
clusterDNS: [10.0.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: "unix://%s"
failSwapOn: false
oomScoreAdj: 0
resolvConf: /etc/resolv.conf
rotateCertificates: true
serverTLSBootstrap: true
`, n.c.cert("apiserver", "kubelet-ca.crt"), n.socket()))
	if err != nil {
		return err
	}
	return n.c.start("kubelet", n.c.tool("kubelet"), "--config="+n.path("kubelet.yaml"),
		"--bootstrap-kubeconfig="+n.path("bootstrap.kubeconfig"), "--kubeconfig="+n.path("kubelet.kubeconfig"),
		"--cert-dir="+n.path("pki"), "--root-dir="+n.path("kubelet"), "--hostname-override="+nodeName, "--node-ip="+n.address)
}

// approve approves the serving certificate of the kubelet, which no controller approves, and
// returns nil when it is issued.
func (n *node) approve(ctx context.Context) error {
	requests, err := n.client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range requests.Items {
		if r.Spec.SignerName != kubeletSigner || r.Spec.Username != "system:node:"+nodeName {
			continue
		}
		if len(r.Status.Certificate) > 0 {
			return nil
		}
		if len(r.Status.Conditions) > 0 {
			continue
		}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type:   certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue,
			Reason: "Conformance",
		}}
		if _, err := n.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, &r,
			metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return fmt.Errorf("no serving certificate among %d requests", len(requests.Items))
}

func (n *node) ready(ctx context.Context) error {
	found, err := n.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range found.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("its conditions are %v", found.Status.Conditions)
}

// startProxy starts kube-proxy with a token of its service account.
func (n *node) startProxy() error {
	const kubeconfig = "kube-proxy.kubeconfig"
	if err := n.proxyKubeconfig(n.path(kubeconfig)); err != nil {
		return err
	}
	err := n.write("kube-proxy.yaml", fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
clusterCIDR: %s
conntrack: {maxPerCore: 0}
hostnameOverride: %s
mode: iptables
oomScoreAdj: 0
`, n.path(kubeconfig), podNetwork, nodeName))
	if err != nil {
		return err
	}
	return n.c.start("kube-proxy", n.c.tool("kube-proxy"), "--config="+n.path("kube-proxy.yaml"))
}

// removeContainers ends containers that the kubelet left behind, and removes their network and
// mounts.
func (n *node) removeContainers() {
	out, err := n.ctr("tasks", "list", "--quiet")
	for _, id := range strings.Fields(out) {
		_, taskErr := n.ctr("tasks", "delete", "--force", id)
		err = errors.Join(err, taskErr)
	}
	_ = exec.Command("ip", "link", "delete", podBridge).Run() // absent if no pod ran
	mounts, mountErr := os.ReadFile("/proc/self/mounts")
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if at := strings.Fields(line); len(at) > 1 && strings.HasPrefix(at[1], n.dir+"/") {
			mountErr = errors.Join(mountErr, syscall.Unmount(at[1], syscall.MNT_DETACH))
		}
	}
	if err := errors.Join(err, mountErr); err != nil {
		fmt.Fprintln(os.Stderr, "remove containers:", err)
	}
}
