package serviceaccount

import (
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request"
)

// Name is the name of the plugin in flags and configuration.
const Name = "ServiceAccount"

// defaultAccount is the account of pods without an account.
const defaultAccount = "default"

// enforceAnnotation is the annotation by which an account limits pods to its secrets.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

// Accounts looks up service accounts. It also finds accounts that another replica has just created.
// A missing account is a NotFound error.
type Accounts interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
}

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct{ Accounts Accounts }

// podOf returns the pod of a request for a pod or its ephemeral containers, otherwise nil.
func podOf(req *admission.Request) *corev1.Pod {
	if !req.IsResource("", "pods") || req.Subresource != "" && req.Subresource != "ephemeralcontainers" {
		return nil
	}
	pod, _ := req.Object.(*corev1.Pod)
	return pod
}

// isMirror reports whether a pod mirrors one that a kubelet runs by itself.
func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// Admit adds the account, its token and its image pull secrets to a new pod, and then checks the
// pod like Validate. It does not change mirror pods.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	pod := podOf(req)
	if pod == nil || req.Operation != admission.Create {
		return nil
	}
	if isMirror(pod) {
		return p.Validate(ctx, req)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := p.accountOf(ctx, req, pod)
	if err != nil {
		return err
	}
	if mountsToken(account, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		if err := request.Estimate(ctx, costOf(account.ImagePullSecrets)); err != nil {
			return err
		}
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return p.Validate(ctx, req)
}

// costOf returns the cost of adding references to secrets to a pod, in the unit of
// request.Estimate.
func costOf(secrets []corev1.LocalObjectReference) (cost int) {
	for i := range secrets {
		cost += request.PerValue + len(secrets[i].Name)
	}
	return cost
}

// Validate rejects pods that the account does not allow.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	pod := podOf(req)
	switch {
	case pod == nil:
		return nil
	case req.Operation == admission.Update && req.Subresource == "ephemeralcontainers":
		return p.checkAccount(ctx, req, pod, checkEphemeralContainers)
	case req.Operation != admission.Create:
		return nil
	case isMirror(pod):
		return forbidden(req, checkMirror(pod))
	}
	return p.checkAccount(ctx, req, pod, checkSecrets)
}

// checkAccount rejects a pod without an account. If the account limits pods to its secrets, it also
// rejects a pod for which check returns an error.
func (p *Plugin) checkAccount(
	ctx context.Context,
	req *admission.Request,
	pod *corev1.Pod,
	check func(*corev1.ServiceAccount, *corev1.Pod) error,
) error {
	if pod.Spec.ServiceAccountName == "" {
		return req.Forbiddenf("no service account specified for pod %s/%s", req.Namespace, pod.Name)
	}
	account, err := p.accountOf(ctx, req, pod)
	if err != nil || !enforcesSecrets(account) {
		return err
	}
	return forbidden(req, check(account, pod))
}

// forbidden returns a Forbidden error with the reason err, or nil.
func forbidden(req *admission.Request, err error) error {
	if err == nil {
		return nil
	}
	return req.Forbidden(err)
}

// accountOf returns the service account of a pod. If the account cannot be read, it returns a
// Forbidden error.
func (p *Plugin) accountOf(ctx context.Context, req *admission.Request, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	name := pod.Spec.ServiceAccountName
	if faults := path.IsValidPathSegmentName(name); len(faults) > 0 {
		return nil, req.Forbiddenf(
			"error looking up service account %s/%s: invalid resource name %q: %v",
			req.Namespace,
			name,
			name,
			faults,
		)
	}
	account, err := p.Accounts.ServiceAccount(ctx, req.Namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, req.Forbiddenf("error looking up service account %s/%s: serviceaccount %q not found", req.Namespace, name, name)
	case err != nil: // it is unknown whether the pod may use the account
		return nil, req.Forbiddenf("error looking up service account %s/%s: %v", req.Namespace, name, err)
	}
	return account, nil
}

// enforcesSecrets reports whether the account limits pods to its secrets.
func enforcesSecrets(a *corev1.ServiceAccount) bool {
	enforced, _ := strconv.ParseBool(a.Annotations[enforceAnnotation])
	return enforced
}

// mountsToken reports whether the pod gets the account's token. The setting of the pod takes
// precedence over the setting of the account. The default is true.
func mountsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if pod.Spec.AutomountServiceAccountToken != nil {
		return *pod.Spec.AutomountServiceAccountToken
	}
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken
}
