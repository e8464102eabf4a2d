package poddefaults

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/json/transcode"
)

// Protobuf field numbers of messages that rules inspect.
const (
	entryKey         = 1 // of any map
	podIPNumber      = 1 // PodIP.ip
	containersNumber = 2 // PodSpec
	initNumber       = 20
	portsNumber      = 6 // Container
	hostPortNumber   = 2 // ContainerPort
	portNumber       = 3
	podIPsNumber     = 12 // PodStatus
	limitsNumber     = 1  // ResourceRequirements
	requestsNumber   = 2
	lastVolumeSource = 30 // VolumeSource has the numbers 1 to lastVolumeSource
)

// negativeSize is the encoded size of a negative number in bytes.
const negativeSize = 10

// PodDefaultedRules returns the rules that determine whether a stored pod has the defaults of Pod.
func PodDefaultedRules() []transcode.Rule {
	return append(
		TemplateDefaultedRules(),
		transcode.FieldsSet[corev1.PodSpec]("enableServiceLinks"),
		transcode.FieldsPass[corev1.PodSpec](
			func(f [4][]byte) bool { return len(f[0]) < negativeSize },
			"terminationGracePeriodSeconds",
		),
		transcode.FieldsPass[corev1.PodSpec](hostPortsDefaulted, "hostNetwork", "containers", "initContainers"),
		transcode.FieldsPass[corev1.ResourceRequirements](limitsAreRequested, "limits", "requests"),
		transcode.FieldsPass[corev1.PodStatus](addressesArePaired, "podIP", "podIPs"),
	)
}

// TemplateDefaultedRules returns the rules for the defaults of Template. They need not cover
// quantities finer than thousandths, which are always decoded.
func TemplateDefaultedRules() []transcode.Rule {
	return append([]transcode.Rule{
		transcode.FieldsSet[corev1.PodSpec](
			"dnsPolicy",
			"restartPolicy",
			"securityContext",
			"terminationGracePeriodSeconds",
			"schedulerName",
		),
		transcode.FieldsPass[corev1.PodSpec](
			func(f [4][]byte) bool { return bytes.Equal(f[0], f[1]) },
			"serviceAccountName",
			"serviceAccount",
		),
		transcode.FieldsSet[corev1.Container]("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"),
		transcode.FieldsSet[corev1.EphemeralContainerCommon]("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"),
		transcode.FieldsSet[corev1.ContainerPort]("protocol"),
		transcode.FieldsSet[corev1.ObjectFieldSelector]("apiVersion"),
		transcode.FieldsSet[corev1.Probe]("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
		transcode.FieldsSet[corev1.HTTPGetAction]("path", "scheme"),
		transcode.FieldsSet[corev1.GRPCAction]("service"),
		transcode.FieldsPass[corev1.Volume](hasSource, "VolumeSource"),
		transcode.FieldsSet[corev1.SecretVolumeSource]("defaultMode"),
		transcode.FieldsSet[corev1.ConfigMapVolumeSource]("defaultMode"),
		transcode.FieldsSet[corev1.DownwardAPIVolumeSource]("defaultMode"),
		transcode.FieldsSet[corev1.ProjectedVolumeSource]("defaultMode"),
		transcode.FieldsSet[corev1.ServiceAccountTokenProjection]("expirationSeconds"),
		transcode.FieldsSet[corev1.ISCSIVolumeSource]("iscsiInterface"),
		transcode.FieldsSet[corev1.RBDVolumeSource]("pool", "user", "keyring"),
		transcode.FieldsSet[corev1.ScaleIOVolumeSource]("storageMode", "fsType"),
	}, volumeDefaultedRules()...)
}

// ClaimDefaultedRules returns the rules for the defaults of Claim.
func ClaimDefaultedRules() []transcode.Rule {
	return append(volumeDefaultedRules(), transcode.FieldsSet[corev1.PersistentVolumeClaimStatus]("phase"))
}

// volumeDefaultedRules returns the rules that volumes, persistent volumes and claims share.
func volumeDefaultedRules() []transcode.Rule {
	return []transcode.Rule{
		transcode.FieldsSet[corev1.PersistentVolumeClaimSpec]("volumeMode"),
		transcode.FieldsSet[corev1.HostPathVolumeSource]("type"),
		transcode.FieldsSet[corev1.AzureDiskVolumeSource]("cachingMode", "kind", "fsType", "readOnly"),
	}
}

func hostPortsDefaulted(f [4][]byte) bool {
	if len(f[0]) == 0 || len(f[0]) == 1 && f[0][0] == 0 {
		return true // not in the host's network
	}
	port := func(p []byte) bool {
		host, ok := transcode.Number(p, hostPortNumber)
		desired, ok2 := transcode.Number(p, portNumber)
		return ok && ok2 && (int32(host) != 0 || int32(desired) == 0)
	}
	container := func(c []byte) bool { return transcode.Each(c, portsNumber, port) }
	return transcode.Each(f[1], containersNumber, container) && transcode.Each(f[2], initNumber, container)
}

// maxComparedLimits is the number of limits that limitsAreRequested compares with the requests,
// because the time is proportional to the product of both.
const maxComparedLimits = 32

// limitsAreRequested checks the defaults of requestLimits. It returns false for more than
// maxComparedLimits limits: the pod is then decoded.
func limitsAreRequested(f [4][]byte) bool {
	remaining := maxComparedLimits
	return transcode.Each(f[0], limitsNumber, func(limit []byte) bool {
		name, ok := transcode.Text(limit, entryKey)
		if !ok || remaining == 0 {
			return false
		}
		remaining--
		requested := false
		ok = transcode.Each(f[1], requestsNumber, func(request []byte) bool {
			other, ok := transcode.Text(request, entryKey)
			requested = requested || ok && bytes.Equal(name, other)
			return ok
		})
		return ok && requested
	})
}

// addressesArePaired checks the defaults of pairAddresses.
func addressesArePaired(f [4][]byte) bool {
	var first []byte
	count := 0
	ok := transcode.Each(f[1], podIPsNumber, func(a []byte) bool {
		ip, ok := transcode.Text(a, podIPNumber)
		if count == 0 {
			first = ip
		}
		count++
		return ok
	})
	return ok && bytes.Equal(first, f[0]) && (len(f[0]) > 0 || count == 0)
}

// hasSource checks the default of fillVolume.
func hasSource(f [4][]byte) bool {
	n := transcode.First(f[0])
	return n > 0 && n <= lastVolumeSource
}
