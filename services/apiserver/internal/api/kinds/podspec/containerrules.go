package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// containerRules validates the containers of all types, each with the rules of its type.
func (c *check) containerRules(at validate.At) {
	s := c.whole
	if len(s.Containers) == 0 {
		at.Required("containers", "")
	}
	names := validate.Set[string]{}
	validate.Each(at, "containers", s.Containers, func(at validate.At, ctr *corev1.Container) {
		c.anyContainerRules(at, ctr)
		validate.Unique(at, "name", ctr.Name, names)
		c.lifecycleRules(at, ctr)
		at.Absent("restartPolicy", ctr.RestartPolicy != nil, "may not be set for non-init containers")
	})
	uniqueHostPorts(at, "containers", s.Containers)
	c.initContainerRules(at)
	c.ephemeralContainerRules(at)
}

const notForInit = "may not be set for init containers without restartPolicy=Always"

func (c *check) initContainerRules(at validate.At) {
	s := c.whole
	names := validate.SetOf(s.Containers, containerName)
	for i := range s.InitContainers {
		ctr, place := &s.InitContainers[i], at.Index("initContainers", i)
		c.anyContainerRules(place, ctr)
		validate.OptionalOneOf(place, "restartPolicy", ctr.RestartPolicy, corev1.ContainerRestartPolicyAlways)
		if names.Has(ctr.Name) {
			place.Duplicate("name", ctr.Name)
		} else if ctr.Name != "" {
			names.Add(ctr.Name)
		}
		// Init containers run one at a time, so each may use the same ports. As in Kubernetes, the
		// index in the path is that of a list of one.
		uniqueHostPorts(at, "initContainers", s.InitContainers[i:i+1])
		if isSidecar(ctr) {
			c.lifecycleRules(place, ctr)
		} else {
			place.Absent("lifecycle", ctr.Lifecycle != nil, notForInit)
			place.Absent("livenessProbe", ctr.LivenessProbe != nil, notForInit)
			place.Absent("readinessProbe", ctr.ReadinessProbe != nil, notForInit)
			place.Absent("startupProbe", ctr.StartupProbe != nil, notForInit)
		}
		if !c.inPlaceResize && !c.kept.sidecarResize && len(ctr.ResizePolicy) > 0 {
			place.Invalid("resizePolicy", ctr.ResizePolicy, "must not be set for init containers")
		}
	}
}

const notForEphemeral = "cannot be set for an Ephemeral Container"

func (c *check) ephemeralContainerRules(at validate.At) {
	s := c.whole
	if len(s.EphemeralContainers) == 0 {
		return
	}
	targets := validate.SetOf(s.Containers, containerName)
	for i := range s.InitContainers {
		targets.Add(s.InitContainers[i].Name)
	}
	names := validate.Set[string]{}
	for name := range targets {
		names.Add(name)
	}
	validate.Each(at, "ephemeralContainers", s.EphemeralContainers, func(at validate.At, e *corev1.EphemeralContainer) {
		ctr := (*corev1.Container)(&e.EphemeralContainerCommon)
		c.anyContainerRules(at, ctr)
		trimmedImage(at, ctr)
		validate.Unique(at, "name", e.Name, names)
		if e.TargetContainerName != "" && !targets.Has(e.TargetContainerName) {
			at.NotFound("targetContainerName", e.TargetContainerName)
		}
		at.OnlyFields(e.EphemeralContainerCommon, notForEphemeral,
			"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
			"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")
		validate.Each(at, "volumeMounts", e.VolumeMounts, func(at validate.At, m *corev1.VolumeMount) {
			at.Absent("subPath", m.SubPath != "", notForEphemeral)
			at.Absent("subPathExpr", m.SubPathExpr != "", notForEphemeral)
		})
	})
}

func containerName(c *corev1.Container) string { return c.Name }

// isSidecar reports whether an init container keeps running beside the other containers.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// anyContainerRules validates a container of any type.
func (c *check) anyContainerRules(at validate.At, ctr *corev1.Container) {
	at.RequiredText("name", ctr.Name, validate.DNSLabel)
	at.Present("image", ctr.Image != "")
	validate.RequiredOneOf(at, "terminationMessagePolicy", ctr.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	portNames := validate.Set[string]{}
	validate.Each(at, "ports", ctr.Ports, func(at validate.At, p *corev1.ContainerPort) { portRules(at, p, portNames) })
	c.envRules(at, ctr)
	c.mountRules(at, ctr)
	deviceRules(at, ctr, c.volumes)
	pullPolicyRules(at, "imagePullPolicy", ctr.ImagePullPolicy)
	c.resourceRules(at.Child("resources"), &ctr.Resources, ContainerResourceName)
	c.resizePolicyRules(at, ctr.ResizePolicy)
	validate.Optional(at, "securityContext", ctr.SecurityContext, c.securityRules)
}

func pullPolicyRules(at validate.At, name string, p corev1.PullPolicy) {
	validate.RequiredOneOf(at, name, p, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func portRules(at validate.At, p *corev1.ContainerPort, names validate.Set[string]) {
	if p.Name != "" {
		if msgs := validate.PortName(p.Name); len(msgs) > 0 {
			at.Messages("name", p.Name, msgs)
		} else {
			validate.Unique(at, "name", p.Name, names)
		}
	}
	if p.ContainerPort == 0 {
		at.Required("containerPort", "")
	} else {
		at.Port("containerPort", p.ContainerPort)
	}
	if p.HostPort != 0 {
		at.Port("hostPort", p.HostPort)
	}
	Protocol(at, p.Protocol)
}

// Protocol validates the protocol of a port.
func Protocol(at validate.At, p corev1.Protocol) {
	validate.RequiredOneOf(at, "protocol", p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// uniqueHostPorts rejects host ports that several containers use.
func uniqueHostPorts(at validate.At, name string, containers []corev1.Container) {
	seen := validate.Set[string]{}
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			if p.HostPort == 0 {
				continue
			}
			if key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort); !seen.Add(key) {
				at.Index(name, i).Index("ports", j).Duplicate("hostPort", key)
			}
		}
	}
}

func (c *check) resizePolicyRules(at validate.At, policies []corev1.ContainerResizePolicy) {
	seen := validate.Set[corev1.ResourceName]{}
	for i := range policies {
		p := &policies[i]
		if !seen.Add(p.ResourceName) {
			at.Index("resizePolicy", i).Duplicate("", p.ResourceName)
		}
		validate.RequiredOneOf(at, "resizePolicy", p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		validate.RequiredOneOf(at, "resizePolicy", p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.whole.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			at.Invalid("resizePolicy", p.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'")
		}
	}
}

// trimmedImage applies to pods only, because stored templates with such images exist.
func trimmedImage(at validate.At, ctr *corev1.Container) {
	if strings.TrimSpace(ctr.Image) != ctr.Image {
		at.Invalid("image", ctr.Image, "must not have leading or trailing whitespace")
	}
}
