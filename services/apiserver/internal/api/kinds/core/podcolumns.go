package core

import (
	"cmp"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
)

// reasonNodeLost is the status reason of pods on an unreachable node.
const reasonNodeLost = "NodeLost"

func podColumns() []registry.Column {
	return []registry.Column{
		columns.Name(),
		columns.Text("Ready", "The aggregate readiness state of this pod for accepting traffic.", func(pod *corev1.Pod) string {
			s := summarize(pod)
			return fmt.Sprintf("%d/%d", s.ready, s.total)
		}),
		columns.Text("Status", "The aggregate status of the containers in this pod.", func(pod *corev1.Pod) string {
			return summarize(pod).reason
		}),
		columns.New(
			"Restarts",
			columns.String,
			"",
			"The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
			0,
			func(pod *corev1.Pod) any { return restartsCell(summarize(pod).restarts) },
		),
		columns.Age(),
		columns.WideText("IP", columns.Doc(corev1.PodStatus{}, "podIP"), func(pod *corev1.Pod) string {
			if len(pod.Status.PodIPs) > 0 {
				return columns.OrNone(pod.Status.PodIPs[0].IP)
			}
			return columns.OrNone(pod.Status.PodIP)
		}),
		columns.WideText("Node", columns.Doc(corev1.PodSpec{}, "nodeName"), func(pod *corev1.Pod) string {
			return columns.OrNone(pod.Spec.NodeName)
		}),
		columns.WideText("Nominated Node", columns.Doc(corev1.PodStatus{}, "nominatedNodeName"), func(pod *corev1.Pod) string {
			return columns.OrNone(pod.Status.NominatedNodeName)
		}),
		columns.WideText("Readiness Gates", columns.Doc(corev1.PodSpec{}, "readinessGates"), readinessGatesText),
	}
}

// podReads returns the fields that columns and row conditions read.
func podReads() []string {
	reads := []string{
		"metadata.name", "metadata.creationTimestamp", "metadata.deletionTimestamp",
		"spec.containers.name", "spec.initContainers.name", "spec.initContainers.restartPolicy",
		"spec.nodeName", "spec.readinessGates",
		"status.phase", "status.reason", "status.podIP", "status.podIPs", "status.nominatedNodeName",
		"status.conditions.type", "status.conditions.status", "status.conditions.reason",
	}
	for _, statuses := range []string{"status.initContainerStatuses.", "status.containerStatuses."} {
		for _, f := range []string{"name", "restartCount", "ready", "started", "state", "lastState.terminated.finishedAt"} {
			reads = append(reads, statuses+f)
		}
	}
	return reads
}

// reusePod clears a pod. The lists in podReads keep their memory.
func reusePod(pod *corev1.Pod) {
	*pod = corev1.Pod{
		Spec: corev1.PodSpec{
			Containers:     emptyKeepingMemory(pod.Spec.Containers),
			InitContainers: emptyKeepingMemory(pod.Spec.InitContainers),
			ReadinessGates: emptyKeepingMemory(pod.Spec.ReadinessGates),
		},
		Status: corev1.PodStatus{
			Conditions:            emptyKeepingMemory(pod.Status.Conditions),
			PodIPs:                emptyKeepingMemory(pod.Status.PodIPs),
			ContainerStatuses:     emptyKeepingMemory(pod.Status.ContainerStatuses),
			InitContainerStatuses: emptyKeepingMemory(pod.Status.InitContainerStatuses),
		},
	}
}

// emptyKeepingMemory returns an empty list that keeps the memory of s unless it is large.
func emptyKeepingMemory[T any](s []T) []T {
	const maximum = 32
	if cap(s) > maximum {
		return nil
	}
	return s[:0]
}

// podRowConditions marks the rows of pods that have ended.
func podRowConditions(pod *corev1.Pod) []metav1.TableRowCondition {
	completed := func(message string) []metav1.TableRowCondition {
		return []metav1.TableRowCondition{{
			Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(pod.Status.Phase), Message: message,
		}}
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return completed("The pod has completed successfully.")
	case corev1.PodFailed:
		return completed("The pod failed.")
	default:
		return nil
	}
}

func readinessGatesText(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return columns.None
	}
	ready := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if isPodConditionTrue(pod, gate.ConditionType) {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(pod.Spec.ReadinessGates))
}

func isPodConditionTrue(p *corev1.Pod, typ corev1.PodConditionType) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == typ {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// restarts holds the number of restarts of containers, and the time at which the last restarted run
// ended.
type restarts struct {
	count   int
	lastEnd metav1.Time
}

// add adds the restarts of a container.
func (r *restarts) add(c *corev1.ContainerStatus) {
	r.count += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && r.lastEnd.Before(&t.FinishedAt) {
		r.lastEnd = t.FinishedAt
	}
}

// restartsCell returns the number of restarts, and how long ago the last one was.
func restartsCell(r restarts) any {
	if r.count == 0 || r.lastEnd.IsZero() {
		return strconv.Itoa(r.count)
	}
	return registry.Age{Since: r.lastEnd, Prefix: strconv.Itoa(r.count) + " (", Suffix: " ago)"}
}

// podSummary is the summary of a pod's containers in a table row.
type podSummary struct {
	ready, total int
	reason       string
	restarts     restarts
}

// summarize reduces the statuses of a pod's containers to one reason: the last problem of the pod,
// or else its phase.
func summarize(pod *corev1.Pod) podSummary {
	out := podSummary{total: len(pod.Spec.Containers), reason: cmp.Or(pod.Status.Reason, string(pod.Status.Phase))}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			out.reason = corev1.PodReasonSchedulingGated
		}
	}
	all, sidecars, initializing := out.addInitContainers(pod)
	out.restarts = all
	if !initializing || isPodConditionTrue(pod, corev1.PodInitialized) {
		// Restarts of completed init containers do not count, those of sidecars do.
		out.restarts = sidecars
		out.addContainers(pod)
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == reasonNodeLost:
			out.reason = "Unknown"
		case pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			out.reason = "Terminating"
		}
	}
	return out
}

// addInitContainers adds the statuses of the init containers up to the first that has not
// completed. It returns the restarts of all of these, and of the sidecars among them.
func (s *podSummary) addInitContainers(pod *corev1.Pod) (all, sidecars restarts, initializing bool) {
	isSidecar := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		status := &pod.Spec.InitContainers[i]
		if status.RestartPolicy != nil && *status.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			isSidecar[status.Name] = true
			s.total++
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		all.add(status)
		if isSidecar[status.Name] {
			sidecars.add(status)
		}
		terminated, waiting := status.State.Terminated, status.State.Waiting
		switch {
		case terminated != nil && terminated.ExitCode == 0:
			continue
		case isSidecar[status.Name] && status.Started != nil && *status.Started:
			if status.Ready {
				s.ready++
			}
			continue
		case terminated != nil:
			s.reason = "Init:" + terminationReason(terminated)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return all, sidecars, true
	}
	return all, sidecars, false
}

// addContainers adds the statuses of the containers. It sets the reason to that of the first container
// that has one. The reason is not Completed while another container runs.
func (s *podSummary) addContainers(pod *corev1.Pod) {
	running := false
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		status := &pod.Status.ContainerStatuses[i]
		s.restarts.add(status)
		switch {
		case status.State.Waiting != nil && status.State.Waiting.Reason != "":
			s.reason = status.State.Waiting.Reason
		case status.State.Terminated != nil:
			s.reason = terminationReason(status.State.Terminated)
		case status.Ready && status.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason == "Completed" && running {
		s.reason = "NotReady"
		if isPodConditionTrue(pod, corev1.PodReady) {
			s.reason = "Running"
		}
	}
}

// terminationReason returns the reason, or else the signal or exit code.
func terminationReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}
