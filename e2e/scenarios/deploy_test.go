package scenarios

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"binnacle/e2e/harness"
)

// programs are the programs of images, by the last part of the image names.
var programs = map[string]harness.Program{
	"apiserver": harness.APIServer, "authn-webhook": harness.AuthnWebhook, "authz-webhook": harness.AuthzWebhook,
	"tokencleaner":    harness.TokenCleaner,
	"bootstrapsigner": harness.BootstrapSigner,
	"controllers":     harness.Controllers,
	"etcd":            harness.EtcdServer,
	"nats":            harness.NATSServer,
	"console":         harness.Console, "balancer": harness.Balancer,
}

// imageName matches the last part of an image name and its tag.
var imageName = regexp.MustCompile(`([a-z-]+):[^:/]+$`)

// checkFlags checks a command line of an image against the flags of its program.
func checkFlags(t *testing.T, image string, args []string) {
	t.Helper()
	match := imageName.FindStringSubmatch(image)
	if match == nil || programs[match[1]] == "" {
		t.Errorf("image %q: got no known program, want one of the suite", image)
		return
	}
	var command []string
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = append(command, args[0]), args[1:]
	}
	known := supportedFlags(t, programs[match[1]], command...)
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		if !known[strings.TrimLeft(name, "-")] {
			t.Errorf("%s: got flag %s, want one that the program has", match[1], name)
		}
	}
}

// flagName matches a flag in a help text, with two dashes or, as in Go, one.
var flagName = regexp.MustCompile(`(?m)(?:^|[\s,'"])--?([a-z][a-z0-9_-]*)`)

// supportedFlags returns the flags of a program or of one of its commands.
func supportedFlags(t *testing.T, program harness.Program, command ...string) map[string]bool {
	t.Helper()
	// Some programs exit with an error after --help.
	help, _ := exec.CommandContext(t.Context(), harness.Binary(t, program), append(command, "--help")...).CombinedOutput()
	out := map[string]bool{}
	for _, m := range flagName.FindAllStringSubmatch(string(help), -1) {
		out[m[1]] = true
	}
	if len(out) == 0 {
		t.Fatalf("%s --help: got no flags in %s, want some", program, help)
	}
	return out
}

// createCertificates creates the certificates of a suite and the Secrets of the manifests.
func createCertificates(t *testing.T) (dir, secrets string) {
	t.Helper()
	dir = t.TempDir()
	secrets = filepath.Join(dir, "secrets.yaml")
	if out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.Certificates), "--dir="+dir,
		"--secrets="+secrets).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir, secrets
}

// TestManifests applies the manifests with kubectl strictly and checks the resulting objects.
func TestManifests(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	client, cli := server.Client(), harness.NewCLI(t, server)
	manifests := filepath.Join(harness.Project(t), "deploy", "manifests")
	_, secrets := createCertificates(t)
	cli.Run(t, "apply", "--validate=strict", "-f", filepath.Join(manifests, "base", "namespace.yaml"))
	cli.WithNamespace("binnacle").Run(t, "apply", "--validate=strict", "-f", secrets)
	cli.Run(t, "apply", "--validate=strict", "-f", filepath.Join(manifests, "rbac"))
	for _, test := range []struct {
		overlay  string
		replicas map[string]int32
	}{
		{overlay: "single",
			replicas: map[string]int32{
				"apiserver":       1,
				"authn-webhook":   1,
				"authz-webhook":   1,
				"tokencleaner":    1,
				"bootstrapsigner": 1,
				"controllers":     1,
				"console":         1,
			}},
		{overlay: "ha",
			replicas: map[string]int32{
				"apiserver":       3,
				"authn-webhook":   2,
				"authz-webhook":   2,
				"tokencleaner":    2,
				"bootstrapsigner": 2,
				"controllers":     2,
				"console":         1,
				"etcd":            3,
				"nats":            3,
			}},
	} {
		folder := filepath.Join(manifests, "overlays", test.overlay)
		cli.Run(t, "apply", "--validate=strict", "-k", folder)
		versions := func() string {
			return cli.WithNamespace("binnacle").Run(t, "get",
				"deployments,statefulsets,poddisruptionbudgets,networkpolicies,services,configmaps", "-o",
				"custom-columns=:.kind,:.metadata.name,:.metadata.resourceVersion")
		}
		before := versions()
		cli.Run(t, "apply", "--validate=strict", "-k", folder)
		if after := versions(); after != before {
			t.Errorf("%s: the second apply changed objects:\n%s\n%s", test.overlay, before, after)
		}
		got := map[string]int32{}
		deployments, err := client.AppsV1().Deployments("binnacle").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deployments.Items {
			got[d.Name] = *d.Spec.Replicas
			checkPods(t, server, d.Name, &d.Spec.Template)
		}
		sets, err := client.AppsV1().StatefulSets("binnacle").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sets.Items {
			got[s.Name] = *s.Spec.Replicas
			checkPods(t, server, s.Name, &s.Spec.Template)
		}
		if !maps.Equal(got, test.replicas) {
			t.Errorf("%s: got replicas %v, want %v", test.overlay, got, test.replicas)
		}
	}
	budgets, err := client.PolicyV1().PodDisruptionBudgets("binnacle").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(budgets.Items) != 8 {
		t.Errorf("got %d disruption budgets, %v, want 8", len(budgets.Items), err)
	}
}

// checkPods checks the security settings and volumes of a pod template.
func checkPods(t *testing.T, server *harness.Server, name string, podTemplateSpec *corev1.PodTemplateSpec) {
	t.Helper()
	require := func(ok bool, format string, args ...any) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %s", name, fmt.Sprintf(format, args...))
		}
	}
	isTrue := func(b *bool) bool { return b != nil && *b }
	spec := &podTemplateSpec.Spec
	require(spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken,
		"got a service account token, want none")
	require(spec.SecurityContext != nil && isTrue(spec.SecurityContext.RunAsNonRoot), "got permission to run as root, want none")
	for _, container := range spec.Containers {
		checkFlags(t, container.Image, container.Args)
		sc := container.SecurityContext
		require(sc != nil && isTrue(sc.ReadOnlyRootFilesystem) && sc.AllowPrivilegeEscalation != nil &&
			!*sc.AllowPrivilegeEscalation,
			"got security context %v, want a read-only file system without privilege escalation", sc)
		require(container.ReadinessProbe != nil && container.LivenessProbe != nil,
			"got readiness probe %v and liveness probe %v, want both", container.ReadinessProbe, container.LivenessProbe)
		require(!container.Resources.Requests.Cpu().IsZero() && !container.Resources.Requests.Memory().IsZero(),
			"got requests %v, want CPU and memory", container.Resources.Requests)
		checkVolumes(t, server, name, spec, container)
		checkEtcdMemory(t, container)
	}
}

// checkEtcdMemory checks that the memory limit of etcd has room for a database that reaches its
// quota, and that a slow start does not lead to a restart.
func checkEtcdMemory(t *testing.T, container corev1.Container) {
	t.Helper()
	for _, a := range container.Args {
		value, ok := strings.CutPrefix(a, "--quota-backend-bytes=")
		if !ok {
			continue
		}
		quota, err := strconv.ParseInt(value, 10, 64)
		if limit := container.Resources.Limits.Memory().Value(); err != nil || limit < quota+1<<30 {
			t.Errorf("%s: memory limit %d, quota %s, %v, want no error, limit at least %v", container.Name, limit, value, err,
				quota+1<<30)
		}
		if container.StartupProbe == nil {
			t.Errorf("%s: got no startup probe, want one", container.Name)
		}
	}
}

// TestManifestComponents applies the overlay ha with all components.
func TestManifestComponents(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	cli := harness.NewCLI(t, server)
	manifests := filepath.Join(harness.Project(t), "deploy", "manifests")
	_, secrets := createCertificates(t)
	cli.Run(t, "apply", "-f", "testdata/chart-crds.yaml")
	cli.Run(t, "wait", "--for=condition=Established", "-f", "testdata/chart-crds.yaml")
	cli.Run(t, "apply", "-f", filepath.Join(manifests, "base", "namespace.yaml"))
	cli.WithNamespace("binnacle").Run(t, "apply", "-f", secrets)
	cli.Run(t, "apply", "--validate=strict", "-k",
		writeKustomization(t, "overlays/ha", "components/backup", "components/rbac-fallback", "monitoring"))
	job, err := server.Client().BatchV1().CronJobs("binnacle").Get(t.Context(), "etcd-backup", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	checkFlags(t, pod.Containers[0].Image, pod.Containers[0].Args)
	checkVolumes(t, server, "etcd-backup", &pod, pod.Containers[0])
	deployment, err := server.Client().AppsV1().Deployments("binnacle").Get(t.Context(), "apiserver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checkPods(t, server, "apiserver", &deployment.Spec.Template)
	if args := strings.Join(deployment.Spec.Template.Spec.Containers[0].Args, " "); !strings.Contains(args,
		"--authorization-config=/etc/authorization/authorization.yaml") || strings.Contains(args, "--authorization-mode") {
		t.Errorf("got arguments %s, want --authorization-config and no --authorization-mode", args)
	}
	if monitors := strings.Fields(cli.WithNamespace("binnacle").Run(t, "get", "servicemonitors", "-o",
		"name")); len(monitors) != 8 {
		t.Errorf("got ServiceMonitors %v, want 8", monitors)
	}
}

// checkVolumes checks that the files on a command line are mounted.
func checkVolumes(t *testing.T, server *harness.Server, name string, spec *corev1.PodSpec, container corev1.Container) {
	t.Helper()
	files := map[string]bool{}
	for _, volume := range spec.Volumes {
		i := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
		if i < 0 {
			t.Errorf("%s: got no mount of volume %s, want one", name, volume.Name)
			continue
		}
		at := container.VolumeMounts[i].MountPath + "/"
		switch {
		case volume.Secret != nil:
			o, err := server.Client().CoreV1().Secrets("binnacle").Get(t.Context(), volume.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				t.Error(err)
			}
			for k := range o.Data {
				files[at+k] = true
			}
		case volume.ConfigMap != nil:
			o, err := server.Client().CoreV1().ConfigMaps("binnacle").Get(t.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				t.Error(err)
			}
			for k := range o.Data {
				files[at+k] = true
			}
		}
	}
	for _, a := range container.Args {
		if _, value, _ := strings.Cut(a,
			"="); (strings.HasPrefix(value, "/certs/") || strings.HasPrefix(value, "/etc/")) && !files[value] {
			t.Errorf("%s: got argument %s, want a volume with its file", name, a)
		}
	}
}

// composeService is a container of the compose file.
type composeService struct {
	Image    string   `json:"image"`
	Command  []string `json:"command"`
	Volumes  []string `json:"volumes"`
	ReadOnly bool     `json:"read_only"`
	User     string   `json:"user"`
	CapDrop  []string `json:"cap_drop"`
	Security []string `json:"security_opt"`
	Memory   string   `json:"mem_limit"`
	Restart  string   `json:"restart"`
	Logging  struct {
		Options map[string]string `json:"options"`
	} `json:"logging"`
	Health struct {
		Test []string `json:"test"`
	} `json:"healthcheck"`
}

// composition is the used part of the compose file.
type composition struct {
	Services map[string]composeService `json:"services"`
}

// variable matches a variable of the compose file with its default.
var variable = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

// readComposeFile reads the compose file with the defaults of its variables.
func readComposeFile(t *testing.T) (out composition) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(harness.Project(t), "deploy", "compose", "compose.yaml"))
	if err == nil {
		err = yaml.Unmarshal(variable.ReplaceAll(data, []byte("$1")), &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestComposeFileMatchesPrograms checks the compose file against the programs and the certificates.
func TestComposeFileMatchesPrograms(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(harness.Project(t), "deploy", "compose")
	dir, _ := createCertificates(t)
	compose := readComposeFile(t)
	number := map[string]int{}
	for name, composeService := range compose.Services {
		if !composeService.ReadOnly || composeService.User != "65532:65532" || !slices.Equal(composeService.CapDrop, []string{"ALL"}) ||
			!slices.Equal(composeService.Security, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: got %+v, want no privileges", name, composeService)
		}
		program := strings.TrimRight(name, "-0123456789")
		if composeService.Memory == "" || composeService.Restart != "unless-stopped" || composeService.Logging.Options["max-size"] == "" ||
			len(composeService.Health.Test) == 0 != (program == "nats" || program == "etcd") {
			t.Errorf("%s: got %+v, want limits, a restart policy and a health check", name, composeService)
		}
		if len(composeService.Health.Test) > 2 && composeService.Health.Test[2] == "healthcheck" {
			checkFlags(t, composeService.Image, composeService.Health.Test[2:])
		}
		mounted := map[string]string{}
		for _, v := range composeService.Volumes {
			parts := strings.Split(v, ":")
			if strings.HasPrefix(parts[0], "./data/") {
				continue // created by the operator
			}
			source := filepath.Join(folder, parts[0])
			if sub, ok := strings.CutPrefix(parts[0], "./certs/"); ok {
				if sub != program {
					t.Errorf("%s mounts the folder of %s, want %v", name, sub, program)
				}
				source = filepath.Join(dir, sub)
			}
			if _, err := os.Stat(source); err != nil {
				t.Errorf("%s mounts a missing file: %v", name, err)
			}
			mounted[parts[1]] = source
		}
		for _, a := range composeService.Command {
			_, value, _ := strings.Cut(a, "=")
			for at, source := range mounted {
				if strings.HasPrefix(value, at) {
					if _, err := os.Stat(source + strings.TrimPrefix(value, at)); err != nil {
						t.Errorf("%s: argument %s names a missing file: %v", name, a, err)
					}
				}
			}
		}
		checkFlags(t, composeService.Image, composeService.Command)
		number[imageName.FindStringSubmatch(composeService.Image)[1]]++
	}
	if want := map[string]int{
		"etcd":            3,
		"nats":            3,
		"apiserver":       2,
		"authn-webhook":   2,
		"authz-webhook":   2,
		"tokencleaner":    2,
		"bootstrapsigner": 2,
		"controllers":     2,
		"balancer":        1,
		"console":         1,
	}; !maps.Equal(number, want) {
		t.Errorf("got services %v, want %v", number, want)
	}
	for _, conf := range []string{filepath.Join(folder, "nats.conf"),
		filepath.Join(harness.Project(t), "deploy", "manifests", "overlays", "ha", "nats.conf")} {
		text, err := os.ReadFile(conf)
		if err != nil {
			t.Fatal(err)
		}
		here := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(here, []byte(strings.ReplaceAll(string(text), "/certs/", dir+"/nats/")), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.NATSServer), "-t",
			"--config="+here).CombinedOutput(); err != nil {
			t.Errorf("nats-server -t with %s: got error %v, want none\n%s", conf, err, out)
		}
	}
	checkKubeconfigs(t, dir)
}

// checkKubeconfigs checks the files and servers in the kubeconfigs.
func checkKubeconfigs(t *testing.T, certs string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(harness.Project(t), "deploy", "manifests", "base", "kubeconfigs", "*.kubeconfig"))
	if err != nil || len(files) != 8 {
		t.Fatalf("got %d kubeconfigs, %v, want 8", len(files), err)
	}
	for _, file := range files {
		config, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		x := config.Contexts[config.CurrentContext]
		cluster, user := config.Clusters[x.Cluster], config.AuthInfos[x.AuthInfo]
		program := strings.TrimSuffix(filepath.Base(file), ".kubeconfig")
		if strings.HasPrefix(program, "apiserver-") {
			program = "apiserver"
		}
		for _, path := range []string{cluster.CertificateAuthority, user.ClientCertificate, user.ClientKey} {
			if _, err := os.Stat(filepath.Join(certs, program, strings.TrimPrefix(path, "/certs/"))); err != nil {
				t.Errorf("%s names a missing file: %v", filepath.Base(file), err)
			}
		}
		if !slices.Contains([]string{"https://apiserver:6443", "https://authn-webhook:6444",
			"https://authz-webhook:6445"}, cluster.Server) {
			t.Errorf("%s: got server %s, want one of the suite", filepath.Base(file), cluster.Server)
		}
	}
}
