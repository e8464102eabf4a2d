package poddefaults

import (
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/registry/declare"
)

// gracePeriod is the default in seconds.
const gracePeriod = 30

// Pod sets the defaults of a pod. In addition to those of a template, these are service links,
// requests that equal limits, and host ports.
func Pod(pod *corev1.Pod) {
	declare.SetDefaultPtr(&pod.Spec.EnableServiceLinks, true)
	requestLimits(pod.Spec.InitContainers)
	requestLimits(pod.Spec.Containers)
	if pod.Spec.HostNetwork {
		hostPorts(pod.Spec.InitContainers)
		hostPorts(pod.Spec.Containers)
	}
	Spec(&pod.Spec)
	// A negative period becomes 1 second. Templates keep a negative period.
	if *pod.Spec.TerminationGracePeriodSeconds < 0 {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	}
	pairAddresses(&pod.Status)
}

// Template sets the defaults of a workload's pod template.
func Template(t *corev1.PodTemplateSpec) { Spec(&t.Spec) }

// Spec sets the defaults that pods and templates share.
func Spec(podSpec *corev1.PodSpec) {
	declare.SetDefault(&podSpec.DNSPolicy, corev1.DNSClusterFirst)
	declare.SetDefault(&podSpec.RestartPolicy, corev1.RestartPolicyAlways)
	declare.SetDefaultPtr(&podSpec.SecurityContext, corev1.PodSecurityContext{})
	declare.SetDefaultPtr(&podSpec.TerminationGracePeriodSeconds, gracePeriod)
	declare.SetDefault(&podSpec.SchedulerName, corev1.DefaultSchedulerName)
	// ServiceAccountName takes precedence. The other field is its old name and always equal.
	declare.SetDefault(&podSpec.ServiceAccountName, podSpec.DeprecatedServiceAccount)
	podSpec.DeprecatedServiceAccount = podSpec.ServiceAccountName

	for i := range podSpec.Volumes {
		fillVolume(&podSpec.Volumes[i])
	}
	for i := range podSpec.InitContainers {
		fillContainer(&podSpec.InitContainers[i])
	}
	for i := range podSpec.Containers {
		fillContainer(&podSpec.Containers[i])
	}
	for i := range podSpec.EphemeralContainers {
		fillContainer((*corev1.Container)(&podSpec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	Round(podSpec.Overhead)
	if podSpec.Resources != nil {
		Round(podSpec.Resources.Limits)
		Round(podSpec.Resources.Requests)
	}
}

func requestLimits(containers []corev1.Container) {
	for i := range containers {
		resourceRequirements := &containers[i].Resources
		for name, limit := range resourceRequirements.Limits {
			if _, ok := resourceRequirements.Requests[name]; ok {
				continue
			}
			if resourceRequirements.Requests == nil {
				resourceRequirements.Requests = corev1.ResourceList{}
			}
			resourceRequirements.Requests[name] = limit.DeepCopy()
		}
	}
}

// hostPorts sets missing host ports of a pod in the host's network to the container ports.
func hostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			declare.SetDefault(&p.HostPort, p.ContainerPort)
		}
	}
}

// pairAddresses makes podIP equal to the first of podIPs. If they differ, podIP takes precedence,
// because its writer does not know the list.
func pairAddresses(status *corev1.PodStatus) {
	switch {
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
}

// Defaults of probes; times are in seconds.
const (
	probeTimeout   = 1
	probePeriod    = 10
	probeSuccesses = 1
	probeFailures  = 3
)

func fillContainer(container *corev1.Container) {
	fillPullPolicy(&container.ImagePullPolicy, container.Image)
	declare.SetDefault(&container.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	declare.SetDefault(&container.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range container.Ports {
		declare.SetDefault(&container.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range container.Env {
		if from := container.Env[i].ValueFrom; from != nil {
			fillFieldRef(from.FieldRef)
		}
	}
	Round(container.Resources.Limits)
	Round(container.Resources.Requests)
	for _, p := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		fillProbe(p)
	}
	if container.Lifecycle != nil {
		fillHook(container.Lifecycle.PostStart)
		fillHook(container.Lifecycle.PreStop)
	}
}

func fillFieldRef(r *corev1.ObjectFieldSelector) {
	if r != nil {
		declare.SetDefault(&r.APIVersion, "v1")
	}
}

func fillProbe(probe *corev1.Probe) {
	if probe == nil {
		return
	}
	declare.SetDefault(&probe.TimeoutSeconds, probeTimeout)
	declare.SetDefault(&probe.PeriodSeconds, probePeriod)
	declare.SetDefault(&probe.SuccessThreshold, probeSuccesses)
	declare.SetDefault(&probe.FailureThreshold, probeFailures)
	fillHTTP(probe.HTTPGet)
	if probe.GRPC != nil {
		declare.SetDefaultPtr(&probe.GRPC.Service, "")
	}
}

func fillHook(h *corev1.LifecycleHandler) {
	if h != nil {
		fillHTTP(h.HTTPGet)
	}
}

func fillHTTP(a *corev1.HTTPGetAction) {
	if a != nil {
		declare.SetDefault(&a.Path, "/")
		declare.SetDefault(&a.Scheme, corev1.URISchemeHTTP)
	}
}

// maxImagePath is the maximum length of a name without registry, tag and digest.
const maxImagePath = 255

// latestTag is the tag of images that may change.
const latestTag = "latest"

// imagePatterns holds the patterns of images. Their programs are large, and the other services of
// binnacle do not need them.
type imagePatterns struct {
	name *regexp.Regexp // registry and path, tag, digest
	host *regexp.Regexp
	// hash matches the hash of an image, which is not a name.
	hash *regexp.Regexp
	// digest matches the known digests.
	digest *regexp.Regexp
}

// images returns the patterns, compiled by the first call.
var images = sync.OnceValue(func() *imagePatterns {
	return &imagePatterns{
		name: regexp.MustCompile(`^((?:` + registryPattern + `/)?` + componentPattern + `(?:/` + componentPattern + `)*)` +
			`(?::(\w[\w.-]{0,127}))?` +
			`(@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`),
		host:   regexp.MustCompile("^" + registryPattern + "$"),
		hash:   regexp.MustCompile(`^[a-f0-9]{64}$`),
		digest: regexp.MustCompile(`^@(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$`),
	}
})

const (
	labelPattern     = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	registryPattern  = `(?:` + labelPattern + `(?:\.` + labelPattern + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	componentPattern = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
)

// fillPullPolicy sets a missing pull policy. It parses the image name only in that case.
func fillPullPolicy(p *corev1.PullPolicy, image string) {
	if *p == "" {
		*p = pullPolicy(image)
	}
}

// pullPolicy returns Always for an image that may change under its name. Other validation rejects
// invalid names.
func pullPolicy(image string) corev1.PullPolicy {
	m := images().name.FindStringSubmatch(image)
	if m == nil || len(imagePath(m[1])) > maxImagePath || images().hash.MatchString(image) {
		return corev1.PullIfNotPresent
	}
	tag, digest := m[2], m[3]
	if digest != "" && !images().digest.MatchString(digest) {
		return corev1.PullIfNotPresent
	}
	if tag == latestTag || tag == "" && digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// imagePath returns a name without its registry. As in Docker, a name without a path is completed
// by "library/".
func imagePath(name string) string {
	path, docker := name, true
	host, rest, ok := strings.Cut(name, "/")
	if ok && images().host.MatchString(host) &&
		(strings.ContainsAny(host, ".:") || host == "localhost" || strings.ToLower(host) != host) {
		path, docker = rest, host == "docker.io" || host == "index.docker.io"
	}
	if docker && !strings.Contains(path, "/") {
		return "library/" + path
	}
	return path
}

// Round rounds quantities up to thousandths, the smallest supported unit.
func Round(l corev1.ResourceList) {
	for name, q := range l {
		if !q.RoundUp(resource.Milli) {
			l[name] = q
		}
	}
}
