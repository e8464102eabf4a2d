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

// account is the only service account.
type account struct{ secrets int }

func (a account) ServiceAccount(context.Context, string, string) (*corev1.ServiceAccount, error) {
	out := &corev1.ServiceAccount{}
	for i := range a.secrets {
		out.ImagePullSecrets = append(out.ImagePullSecrets, corev1.LocalObjectReference{Name: fmt.Sprint("s", i)})
	}
	return out, nil
}

// TestPullSecretsAreCharged: the size of image pull secrets is charged before they are added to a
// pod.
func TestPullSecretsAreCharged(t *testing.T) {
	for _, n := range []int{0, 10, 30_000} {
		for _, may := range []bool{true, false} {
			most, large := 0, n > 1000
			ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create"})
			request.From(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { most = max(most, n); return may }}
			pod, want := &corev1.Pod{}, n
			err := (&serviceaccount.Plugin{Accounts: account{n}}).Admit(ctx, newRequest(admission.Create, "", pod))
			refused := large && !may
			if refused {
				want = 0
			}
			if apierrors.IsTooManyRequests(err) != refused || err != nil && !refused || len(pod.Spec.ImagePullSecrets) != want || large != (most >= request.LargeBody) {
				t.Errorf("%d secrets, permitted %t: got cost %d, %d secrets in the pod, %v", n, may, most, len(pod.Spec.ImagePullSecrets), err)
			}
		}
	}
}
