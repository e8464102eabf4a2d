package statuses

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission/typecheck"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/aggregation"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Definitions writes the statuses of custom resource definitions.
type Definitions struct{ Client *internalclient.Client }

// PatchStatus implements definition.Client. patch is a merge patch.
func (s Definitions) PatchStatus(ctx context.Context, name string, patch any, preconditions ...storage.Precondition) error {
	ref := internalclient.Collection(apiextensionsv1.GroupName, "v1", "customresourcedefinitions", "")
	return s.Client.Patch(ctx, ref.Named(name).Subresource("status"), patch, preconditions...)
}

// Policies writes the results of type checks to the statuses of admission policies.
type Policies struct{ Client *internalclient.Client }

// ApplyStatus implements typecheck.Client.
func (s Policies) ApplyStatus(
	ctx context.Context,
	policy *admissionregistrationv1.ValidatingAdmissionPolicy,
	status admissionregistrationv1.ValidatingAdmissionPolicyStatus,
) error {
	ref := internalclient.Collection(admissionregistrationv1.GroupName, "v1", "validatingadmissionpolicies", "").
		Named(policy.Name).
		Subresource("status")
	desired := internalclient.NewStatus(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		internalclient.StatusMetadata{Name: policy.Name, UID: policy.UID, ResourceVersion: policy.ResourceVersion}, status)
	return s.Client.WithManager(typecheck.Manager).Apply(ctx, ref, desired)
}

// maxStatusAttempts is the maximum number of attempts to write a status in spite of conflicts.
const maxStatusAttempts = 5

// WriteAvailable sets the condition Available of an APIService. It writes nothing if the APIService
// already has the condition, for example because another replica has determined the same.
func WriteAvailable(
	ctx context.Context,
	client *internalclient.Client,
	name string,
	condition apiregistrationv1.APIServiceCondition,
) error {
	ref := internalclient.Collection(apiregistrationv1.GroupName, "v1", "apiservices", "").Named(name)
	for range maxStatusAttempts {
		var apiService apiregistrationv1.APIService
		if err := client.Get(ctx, ref, &apiService); err != nil {
			return err
		}
		if !setAvailable(&apiService, condition) {
			return nil
		}
		if err := client.Update(ctx, ref.Subresource("status"), &apiService, nil); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s: too many conflicting updates", name)
}

// setAvailable sets the condition and reports whether it changed.
func setAvailable(apiService *apiregistrationv1.APIService, condition apiregistrationv1.APIServiceCondition) bool {
	for i := range apiService.Status.Conditions {
		existing := &apiService.Status.Conditions[i]
		if existing.Type != condition.Type {
			continue
		}
		if aggregation.EqualConditions(existing, &condition) {
			return false
		}
		if existing.Status == condition.Status {
			condition.LastTransitionTime = existing.LastTransitionTime
		}
		*existing = condition
		return true
	}
	apiService.Status.Conditions = append(apiService.Status.Conditions, condition)
	return true
}

// maxEventReason is the approximate maximum size in bytes of the reason in an Event's message. The
// message may have at most 1 KiB in events.k8s.io/v1, but a reason may quote a response head of a
// megabyte.
const maxEventReason = 512

// RecordWebhookEvent creates an Event that involves the configuration of a webhook. It logs errors.
func RecordWebhookEvent(ctx context.Context, client *internalclient.Client, log *slog.Logger, reachability webhooks.ReachabilityEvent) {
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-webhook-", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(),
			Kind:       reachability.Kind,
			Name:       reachability.Configuration,
		},
		Type: corev1.EventTypeWarning, Reason: "WebhookUnreachable",
		Message: fmt.Sprintf("admission webhook %q is not called until it answers again: %s",
			reachability.Webhook, status.Truncate(reachability.Reason, maxEventReason)),
		Source:         corev1.EventSource{Component: "binnacle-apiserver"},
		FirstTimestamp: now,
		LastTimestamp:  now,
		Count:          1,
	}
	if reachability.Reachable {
		event.Type = corev1.EventTypeNormal
		event.Reason = "WebhookAnswers"
		event.Message = fmt.Sprintf("admission webhook %q answers again", reachability.Webhook)
	}
	err := client.Create(ctx, internalclient.Collection("", "v1", "events", metav1.NamespaceDefault), event)
	if err != nil && ctx.Err() == nil {
		log.Warn("failed to write the event of a webhook", "configuration", reachability.Configuration, "webhook", reachability.Webhook, "error", err)
	}
}
