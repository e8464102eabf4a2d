package serviceaccount_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/serviceaccount"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// account is the only service account. It has a number of image pull secrets.
type account struct{ secrets int }

func (a account) ServiceAccount(context.Context, string, string) (*corev1.ServiceAccount, error) {
	out := &corev1.ServiceAccount{}
	for i := range a.secrets {
		out.ImagePullSecrets = append(out.ImagePullSecrets, corev1.LocalObjectReference{Name: fmt.Sprint("s", i)})
	}
	return out, nil
}

// TestPullSecretsAreCharged checks that the size of image pull secrets is charged before they are
// added to a pod, and that a rejected charge rejects the pod.
func TestPullSecretsAreCharged(t *testing.T) {
	for _, secrets := range []int{0, 10, 30_000} {
		for _, isPermitted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d secrets, permitted %t", secrets, isPermitted), func(t *testing.T) {
				charged, isLarge := 0, secrets > 1000
				ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create"})
				request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(size int) bool {
					charged = max(charged, size)
					return isPermitted // by the limiter for large requests
				}}
				pod := &corev1.Pod{}
				err := (&serviceaccount.Plugin{Accounts: account{secrets}}).Admit(ctx, newRequest(admission.Create, "", pod))
				wantRejected, wantSecrets := isLarge && !isPermitted, secrets
				if wantRejected {
					wantSecrets = 0
				}
				if apierrors.IsTooManyRequests(err) != wantRejected || err != nil && !wantRejected {
					t.Errorf("Admit = %v, want TooManyRequests: %t", err, wantRejected)
				}
				if got := len(pod.Spec.ImagePullSecrets); got != wantSecrets {
					t.Errorf("got %d secrets in the pod, want %d", got, wantSecrets)
				}
				if got := charged >= request.LargeBody; got != isLarge {
					t.Errorf("got a charge of %d bytes, want at least %d: %t", charged, request.LargeBody, isLarge)
				}
			})
		}
	}
}
