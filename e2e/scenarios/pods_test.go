package scenarios

import (
	"crypto/x509"
	"encoding/pem"
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

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/e2e/harness"
)

// pod is a pod that runs as a process. Its root folder is dir, and each of its ports is a port of
// the loopback interface.
type pod struct {
	*harness.Process
	name, subdomain string // subdomain is the Service that gives the pod a host name
	labels          labels.Set
	spec            *corev1.PodSpec
	container       *corev1.Container
	program         harness.Program
	dir             string
	ports           map[int]int // local ports by container port
	// balanced are proxies of Services, by the local address that becomes their target when the pod
	// is ready. They have no target before.
	balanced map[string]*harness.Proxy
	ready    bool
}

// podSet holds the pods of rendered objects and what they mount and connect to.
type podSet struct {
	t *testing.T
	// services holds one pod of each Deployment, stores all pods of StatefulSets, and jobs one pod
	// of each CronJob.
	services, stores, jobs []*pod
	// secrets and configs are the contents of Secrets and ConfigMaps.
	secrets, configs map[string]map[string][]byte
	// targets are the pods behind the addresses of Services. An address is host:port.
	targets map[string]target
	used    map[string]bool // addresses that pods connect to
}

// target is a port of a pod.
type target struct {
	pod   *pod
	local string // 127.0.0.1:port
}

// newPodSet prepares the pods of objects, which include the Secrets.
func newPodSet(t *testing.T, objects []*unstructured.Unstructured) *podSet {
	t.Helper()
	result := &podSet{
		t:       t,
		secrets: map[string]map[string][]byte{},
		configs: map[string]map[string][]byte{},
		targets: map[string]target{},
		used:    map[string]bool{},
	}
	maps.Copy(result.secrets, managedSecrets(t, objects))
	for _, object := range objects {
		switch object.GetKind() {
		case "Secret":
			result.secrets[object.GetName()] = convert[corev1.Secret](t, object).Data
		case "ConfigMap":
			data := map[string][]byte{}
			for k, v := range convert[corev1.ConfigMap](t, object).Data {
				data[k] = []byte(v)
			}
			result.configs[object.GetName()] = data
		case "Deployment":
			result.services = append(result.services, newPod(t, object.GetName(), "", convert[appsv1.Deployment](t, object).Spec.Template))
		case "StatefulSet":
			set := convert[appsv1.StatefulSet](t, object)
			for _, c := range set.Spec.VolumeClaimTemplates {
				set.Spec.Template.Spec.Volumes = append(set.Spec.Template.Spec.Volumes, corev1.Volume{Name: c.Name,
					VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}})
			}
			for i := range *set.Spec.Replicas {
				result.stores = append(result.stores, newPod(t, fmt.Sprintf("%s-%d", set.Name, i), set.Spec.ServiceName, set.Spec.Template))
			}
		case "CronJob":
			result.jobs = append(result.jobs, newPod(t, object.GetName(), "", convert[batchv1.CronJob](t, object).Spec.JobTemplate.Spec.Template))
		}
	}
	for _, object := range objects {
		if object.GetKind() == "Service" {
			result.publishService(convert[corev1.Service](t, object))
		}
	}
	return result
}

// newPod returns a pod of a template with one container.
func newPod(t *testing.T, name, subdomain string, template corev1.PodTemplateSpec) *pod {
	t.Helper()
	if len(template.Spec.Containers) != 1 || len(template.Spec.InitContainers) != 0 {
		t.Fatalf("%s: got %d containers and %d init containers, want 1 and 0", name, len(template.Spec.Containers),
			len(template.Spec.InitContainers))
	}
	result := &pod{
		name:      name,
		subdomain: subdomain,
		labels:    template.Labels,
		spec:      &template.Spec,
		container: &template.Spec.Containers[0],
		dir:       t.TempDir(),
		ports:     map[int]int{},
		balanced:  map[string]*harness.Proxy{},
	}
	m := imageName.FindStringSubmatch(strings.Replace(result.container.Image, ":latest", ":v1", 1))
	if m == nil || programs[m[1]] == "" {
		t.Fatalf("%s: unknown image %s", name, result.container.Image)
	}
	result.program = programs[m[1]]
	result.Process = harness.NewProcess(t, name, harness.Binary(t, result.program))
	for _, port := range result.container.Ports {
		result.ports[int(port.ContainerPort)] = harness.FreePort(t)
	}
	return result
}

// publishService records the addresses of a Service.
func (s *podSet) publishService(service *corev1.Service) {
	s.t.Helper()
	found := false
	for _, pod := range slices.Concat(s.services, s.stores) {
		if !labels.SelectorFromSet(service.Spec.Selector).Matches(pod.labels) {
			continue
		}
		found = true
		domain := service.Name + "." + service.Namespace + ".svc"
		hosts := []string{service.Name, domain}
		if pod.subdomain == service.Name {
			hosts = append(hosts, pod.name+"."+domain)
		}
		for _, port := range service.Spec.Ports {
			to := port.TargetPort
			if service.Spec.ClusterIP == corev1.ClusterIPNone || to == (intstr.IntOrString{}) {
				to = intstr.FromInt32(port.Port) // a headless Service doesn't translate ports
			}
			local, err := pod.localAddress(to)
			if err != nil {
				s.t.Fatalf("Service %s: %v", service.Name, err)
			}
			if !service.Spec.PublishNotReadyAddresses {
				pod.balanced[local] = harness.StartProxy(s.t)
				local = pod.balanced[local].Addr
			}
			for _, host := range hosts {
				s.targets[fmt.Sprintf("%s:%d", host, port.Port)] = target{pod, local}
			}
		}
	}
	if !found {
		s.t.Errorf("Service %s selects no pod, want one at least", service.Name)
	}
}

// localAddress returns the address of a container port.
func (p *pod) localAddress(port intstr.IntOrString) (string, error) {
	number := port.IntValue()
	for _, c := range p.container.Ports {
		if port.Type == intstr.String && c.Name == port.StrVal {
			number = int(c.ContainerPort)
		}
	}
	local, ok := p.ports[number]
	if !ok {
		return "", fmt.Errorf("pod %s has no port %s", p.name, port.String())
	}
	return fmt.Sprintf("127.0.0.1:%d", local), nil
}

var (
	// address matches host:port.
	address = regexp.MustCompile(`\b([a-z0-9][a-z0-9.-]*):([0-9]+)\b`)
	// absolutePath matches the start of an absolute path.
	absolutePath = regexp.MustCompile(`(^|[=" ])(/[a-z])`)
	// securePort matches the default of --secure-port in a help text.
	securePort = regexp.MustCompile(`--secure-port int .*\(default ([0-9]+)\)`)
)

// replaceAddresses replaces the paths and addresses of a pod in a text.
func (s *podSet) replaceAddresses(current *pod, text string) string {
	s.t.Helper()
	text = address.ReplaceAllStringFunc(text, func(found string) string {
		if host, port, _ := strings.Cut(found, ":"); host == "0.0.0.0" || host == "127.0.0.1" {
			local, err := current.localAddress(intstr.Parse(port))
			if err != nil {
				s.t.Error(err)
			}
			return local
		}
		to, ok := s.targets[found]
		if !ok {
			s.t.Errorf("%s connects to %s, which is no address of a Service", current.name, found)
			return found
		}
		s.used[found] = true
		return to.local
	})
	return absolutePath.ReplaceAllString(text, "${1}"+current.dir+"${2}")
}

// checkNames checks that serving certificates are valid for the hosts that other pods connect to.
// The processes themselves connect to 127.0.0.1.
func (s *podSet) checkNames() {
	s.t.Helper()
	for used := range s.used {
		pod := s.targets[used].pod
		host, _, _ := strings.Cut(used, ":")
		host = strings.TrimSuffix(host, "-replicas") // the console verifies the name of the service
		text, err := os.ReadFile(filepath.Join(pod.dir, "certs", pod.labels["app.kubernetes.io/name"]+".crt"))
		if err != nil {
			s.t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			err = c.VerifyHostname(host)
		}
		if err != nil {
			s.t.Errorf("%s as %s: %v", pod.name, host, err)
		}
	}
}

// mountVolumes writes the volumes of a pod below its folder.
func (s *podSet) mountVolumes(p *pod) {
	s.t.Helper()
	for _, volumeMount := range p.container.VolumeMounts {
		i := slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == volumeMount.Name })
		if i < 0 {
			s.t.Fatalf("%s has no volume %s", p.name, volumeMount.Name)
		}
		files, mode := s.volumeFiles(p, p.spec.Volumes[i])
		dir := filepath.Join(p.dir, volumeMount.MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			s.t.Fatal(err)
		}
		if mode == nil {
			mode = new(corev1.ConfigMapVolumeSourceDefaultMode)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), content, os.FileMode(*mode)); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// volumeFiles returns the files of a volume and their mode.
func (s *podSet) volumeFiles(current *pod, volume corev1.Volume) (files map[string][]byte, mode *int32) {
	s.t.Helper()
	switch {
	case volume.Secret != nil:
		return s.projectedFiles(volume.Secret.SecretName, s.secrets, volume.Secret.Items), volume.Secret.DefaultMode
	case volume.ConfigMap != nil:
		files = s.projectedFiles(volume.ConfigMap.Name, s.configs, volume.ConfigMap.Items)
		for name, content := range files {
			files[name] = []byte(s.replaceAddresses(current, string(content)))
		}
		return files, volume.ConfigMap.DefaultMode
	case volume.Projected != nil:
		files = map[string][]byte{}
		for _, source := range volume.Projected.Sources {
			maps.Copy(files, s.projectedFiles(source.Secret.Name, s.secrets, source.Secret.Items))
		}
		return files, volume.Projected.DefaultMode
	case volume.PersistentVolumeClaim != nil || volume.EmptyDir != nil:
		return nil, nil
	}
	s.t.Fatalf("%s: volume %s has an unknown source", current.name, volume.Name)
	return nil, nil
}

// projectedFiles returns files with the items of a Secret or ConfigMap, all if items is empty.
func (s *podSet) projectedFiles(object string, objects map[string]map[string][]byte, items []corev1.KeyToPath) map[string][]byte {
	s.t.Helper()
	data, ok := objects[object]
	if !ok {
		s.t.Fatalf("a volume contains %s, which does not exist", object)
	}
	if len(items) == 0 {
		return maps.Clone(data)
	}
	files := map[string][]byte{}
	for _, item := range items {
		if files[item.Path], ok = data[item.Key]; !ok {
			s.t.Fatalf("a volume contains %s of %s, which does not exist", item.Key, object)
		}
	}
	return files
}

// containerArgs returns the command line of a pod.
func (s *podSet) containerArgs(p *pod) (args []string) {
	s.t.Helper()
	for _, a := range p.container.Args {
		for _, e := range p.container.Env {
			if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil || e.ValueFrom.FieldRef.FieldPath != "metadata.name" {
				s.t.Fatalf("%s: unknown source of the variable %s", p.name, e.Name)
			}
			a = strings.ReplaceAll(a, "$("+e.Name+")", p.name)
		}
		args = append(args, s.replaceAddresses(p, a))
	}
	return append(args, s.listenFlags(p)...)
}

// listenFlags returns flags that make a service of the suite listen on a local port. The members of
// stores have their ports in flags and files.
func (s *podSet) listenFlags(p *pod) []string {
	s.t.Helper()
	help, _ := exec.CommandContext(s.t.Context(), harness.Binary(s.t, p.program), "--help").CombinedOutput()
	own := securePort.FindSubmatch(help)
	if own == nil || len(p.container.Ports) == 0 {
		return nil
	}
	port, err := strconv.Atoi(string(own[1]))
	if err != nil || p.ports[port] == 0 {
		s.t.Fatalf("%s listens on port %s, which is no port of the container (%v)", p.name, own[1], err)
	}
	return []string{"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.ports[port])}
}
