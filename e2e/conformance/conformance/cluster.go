package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/kubernetes"
)

const (
	startTimeout = 3 * time.Minute
	nodes        = 4
	tokenIssuer  = "https://kubernetes.default.svc"
	// serviceAddress is the address of the service kubernetes.
	serviceAddress = "10.0.0.1"
	// clientQPS replaces the limit of 20 requests per second with which kube-controller-manager
	// takes longer to delete the namespaces of parallel specs than the specs take.
	clientQPS = 200
	// leaseDuration and renewDeadline replace 15 and 10 seconds, so that kube-controller-manager
	// survives delays on a busy machine.
	leaseDuration = 3 * time.Minute
	renewDeadline = 2 * time.Minute
	// quotaSync replaces 5 minutes. A quota of a resource that kube-controller-manager does not
	// know yet gets its status after this time.
	quotaSync = 10 * time.Second
)

// Offsets of ports from the one of the API server. The services of the suite take those below 10.
const (
	ownControllersPort = 9
	managerPort        = 10
	schedulerPort      = 11
	kwokPort           = 12
)

// sharedControllers are the controllers of kube-controller-manager that the service `controllers` also runs.
var sharedControllers = []string{
	"namespace-controller", "garbage-collector-controller", "serviceaccount-controller",
	"root-ca-certificate-publisher-controller",
	"resourcequota-controller", "clusterrole-aggregation-controller", "ttl-after-finished-controller",
	"certificatesigningrequest-cleaner-controller",
}

//go:embed stages.yaml
var stages []byte

// clusterConfig selects the programs of a cluster and where they run.
type clusterConfig struct {
	binnacle, tools, dir  string
	port                  int
	suite, ownControllers bool
	// node runs a node on this machine instead of simulated ones.
	node bool
}

// cluster is binnacle with kube-controller-manager, kube-scheduler and kwok.
type cluster struct {
	clusterConfig
	ctx     context.Context // ends when a process has exited
	client  *rest.Config
	fail    context.CancelCauseFunc
	stops   []func() // end what was started, in reverse order
	address string   // of the API server for pods and nodes
}

// startCluster starts all programs and waits until the API server is ready. The caller calls stop.
func startCluster(ctx context.Context, config clusterConfig) (_ *cluster, err error) {
	c := &cluster{clusterConfig: config}
	c.ctx, c.fail = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	c.address = "127.0.0.1"
	if !config.suite { // endpoints cannot have a loopback address
		if c.address, err = hostAddress(); err != nil {
			return nil, err
		}
	}
	// 1. The API server, alone or with the other services.
	if config.suite {
		err = c.start("binnacle", c.binnacle, "up", "--dir="+c.dir, fmt.Sprintf("--port=%d", c.port))
	} else {
		err = c.startAPIServer()
	}
	if err != nil {
		return nil, err
	}
	if err := eventually(c.ctx, startTimeout, "binnacle is ready", c.ready); err != nil {
		return nil, err
	}
	// 2. The controllers and the scheduler.
	if config.ownControllers && !config.suite {
		err = c.startOwnControllers()
	}
	if err == nil {
		err = c.startManager()
	}
	if err == nil {
		err = c.start("kube-scheduler", c.tool("kube-scheduler"), c.component("kube-scheduler", schedulerPort)...)
	}
	if err != nil {
		return nil, err
	}
	// 3. Nodes.
	client, err := kubernetes.NewForConfig(c.client)
	if err != nil {
		return nil, err
	}
	if config.node {
		return c, startNode(c, client, c.address)
	}
	if err := createNodes(c.ctx, client); err != nil {
		return nil, err
	}
	stagesFile := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(stagesFile, stages, 0o600); err != nil {
		return nil, err
	}
	return c, c.start("kwok", c.tool("kwok"), "--config="+stagesFile, "--kubeconfig="+c.kubeconfig(),
		"--manage-all-nodes", "--node-ip=127.0.0.1", "--cidr=10.64.0.0/16",
		"--node-lease-duration-seconds=40", fmt.Sprintf("--node-port=%d", c.port+kwokPort),
		fmt.Sprintf("--server-address=127.0.0.1:%d", c.port+kwokPort))
}

// stop ends all programs in the reverse order of their start.
func (c *cluster) stop() {
	for _, stop := range slices.Backward(c.stops) {
		stop()
	}
	c.fail(nil)
}

func (c *cluster) start(name, path string, args ...string) error {
	p, err := startProcess(c.dir, name, path, args, c.fail)
	if err == nil {
		c.stops = append(c.stops, p.stop)
	}
	return err
}

func (c *cluster) tool(name string) string { return filepath.Join(c.tools, name) }
func (c *cluster) server() string          { return fmt.Sprintf("https://%s:%d", c.address, c.port) }
func (c *cluster) kubeconfig() string      { return filepath.Join(c.dir, "kubeconfig") }
func (c *cluster) cert(names ...string) string {
	return filepath.Join(append([]string{c.dir, "certs"}, names...)...)
}

// startAPIServer starts the API server alone, with its embedded etcd, and writes kubeconfigs with
// the names of those that binnacle up writes.
func (c *cluster) startAPIServer() error {
	if out, err := exec.CommandContext(c.ctx, c.binnacle, "certs", "--dir="+c.cert(),
		"--address="+c.address+","+serviceAddress).CombinedOutput(); err != nil {
		return fmt.Errorf("create certificates: %w: %s", err, out)
	}
	for file, cert := range map[string]string{
		"kubeconfig":                         c.cert("admin", "admin"),
		"kube-controller-manager.kubeconfig": c.cert("kube-controller-manager", "kube-controller-manager"),
		"kube-scheduler.kubeconfig":          c.cert("kube-scheduler", "kube-scheduler"),
		"controllers.kubeconfig":             c.cert("controllers", "controllers-client"),
	} {
		if err := c.writeKubeconfig(filepath.Join(c.dir, file), &clientcmdapi.AuthInfo{
			ClientCertificate: cert + ".crt",
			ClientKey:         cert + ".key",
		}); err != nil {
			return err
		}
	}
	return c.start("binnacle", c.binnacle, "apiserver", "--data-dir="+filepath.Join(c.dir, "data"),
		"--bind-address="+c.address, "--advertise-address="+c.address, fmt.Sprintf("--secure-port=%d", c.port),
		"--authorization-mode=Node,RBAC", "--client-ca-file="+c.cert("apiserver", "client-ca.crt"),
		"--enable-bootstrap-token-auth",
		"--tls-cert-file="+c.cert("apiserver", "apiserver.crt"), "--tls-private-key-file="+c.cert("apiserver", "apiserver.key"),
		"--service-account-issuer="+tokenIssuer, "--service-account-signing-key-file="+c.cert("apiserver", "sa.key"),
		"--service-account-key-file="+c.cert("apiserver", "sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--requestheader-client-ca-file="+c.cert("apiserver", "front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.cert("apiserver", "apiserver-proxy-client.crt"),
		"--proxy-client-key-file="+c.cert("apiserver", "apiserver-proxy-client.key"),
		"--kubelet-client-certificate="+c.cert("apiserver", "apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+c.cert("apiserver", "apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority="+c.cert("apiserver", "kubelet-ca.crt"))
}

// writeKubeconfig writes a kubeconfig for the API server.
func (c *cluster) writeKubeconfig(path string, user *clientcmdapi.AuthInfo) error {
	const name = "binnacle"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: c.server(), CertificateAuthority: c.cert("admin", "serving-ca.crt")}
	k.AuthInfos[name] = user
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return clientcmd.WriteToFile(*k, path)
}

// ready reports whether the API server is ready, and reads the kubeconfig that exists by then.
func (c *cluster) ready(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return err
	}
	config.QPS, config.Burst = clientQPS, clientQPS
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c.client = config
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// startOwnControllers starts the service controllers.
func (c *cluster) startOwnControllers() error {
	return c.start("controllers", c.binnacle, "controllers",
		"--kubeconfig="+filepath.Join(c.dir, "controllers.kubeconfig"), "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.port+ownControllersPort),
		"--root-ca-file="+c.cert("admin", "serving-ca.crt"), "--client-ca-file="+c.cert("controllers", "client-ca.crt"),
		"--tls-cert-file="+c.cert("controllers", "controllers.crt"),
		"--tls-private-key-file="+c.cert("controllers", "controllers.key"))
}

// component returns the flags that kube-controller-manager and kube-scheduler share.
func (c *cluster) component(name string, port int) []string {
	kubeconfig := filepath.Join(c.dir, name+".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.port+port), fmt.Sprintf("--kube-api-qps=%d", clientQPS),
		fmt.Sprintf("--kube-api-burst=%d", clientQPS),
	}
}

func (c *cluster) startManager() error {
	selected := []string{"*", "-token-cleaner-controller", "-bootstrap-signer-controller"}
	elect := "true"
	if c.ownControllers {
		elect = "false" // the service controllers does not run while kube-controller-manager holds a lease
		for _, name := range sharedControllers {
			selected = append(selected, "-"+name)
		}
	}
	args := append(c.component("kube-controller-manager", managerPort), "--controllers="+strings.Join(selected, ","),
		"--leader-elect="+elect, "--leader-elect-lease-duration="+leaseDuration.String(),
		"--leader-elect-renew-deadline="+renewDeadline.String(),
		"--use-service-account-credentials",
		"--resource-quota-sync-period="+quotaSync.String(),
		"--service-account-private-key-file="+c.cert("apiserver", "sa.key"),
		"--root-ca-file="+c.cert("admin", "serving-ca.crt"), "--service-cluster-ip-range=10.0.0.0/24")
	if c.node {
		client, kubelet := c.cert("ca", "client-ca"), c.cert("ca", "kubelet-ca")
		args = append(args, "--cluster-signing-kube-apiserver-client-cert-file="+client+".crt",
			"--cluster-signing-kube-apiserver-client-key-file="+client+".key",
			"--cluster-signing-kubelet-client-cert-file="+client+".crt",
			"--cluster-signing-kubelet-client-key-file="+client+".key",
			"--cluster-signing-kubelet-serving-cert-file="+kubelet+".crt",
			"--cluster-signing-kubelet-serving-key-file="+kubelet+".key")
	}
	return c.start("kube-controller-manager", c.tool("kube-controller-manager"), args...)
}

// createNodes creates the nodes that kwok simulates.
func createNodes(ctx context.Context, client kubernetes.Interface) error {
	for i := range nodes {
		name := fmt.Sprintf("kwok-%d", i)
		size := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("500"),
		}
		_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name,
				Labels: map[string]string{
					corev1.LabelHostname:   name,
					corev1.LabelOSStable:   "linux",
					corev1.LabelArchStable: "amd64",
				},
			},
			Spec:   corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.64.%d.0/24", i)},
			Status: corev1.NodeStatus{Capacity: size, Allocatable: size},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	return nil
}
