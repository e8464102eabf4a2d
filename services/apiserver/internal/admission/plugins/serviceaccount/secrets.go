package serviceaccount

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/node"
)

// checkMirror returns an error for a mirror pod that uses a service account, secrets or tokens.
// Otherwise a kubelet could read any secret by creating a mirror pod that refers to it.
func checkMirror(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return errors.New("a mirror pod may not reference service accounts")
	}
	if node.UsesSecrets(pod) {
		return errors.New("a mirror pod may not reference secrets")
	}
	for i := range pod.Spec.Volumes {
		if projected := pod.Spec.Volumes[i].Projected; projected != nil {
			for _, source := range projected.Sources {
				if source.ServiceAccountToken != nil {
					return errors.New("a mirror pod may not use ServiceAccountToken volume projections")
				}
			}
		}
	}
	return nil
}

// checkSecrets returns an error for a pod that uses secrets or image pull secrets that its account
// does not list.
func checkSecrets(serviceAccount *corev1.ServiceAccount, pod *corev1.Pod) error {
	listed := map[string]bool{}
	for _, secret := range serviceAccount.Secrets {
		listed[secret.Name] = true
	}
	for i := range pod.Spec.Volumes {
		if source := pod.Spec.Volumes[i].Secret; source != nil && !listed[source.SecretName] {
			return fmt.Errorf(
				"volume with secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
				source.SecretName, serviceAccount.Name)
		}
	}
	for _, group := range []struct {
		subject    string
		containers []corev1.Container
	}{{subject: "init container", containers: pod.Spec.InitContainers}, {subject: "container", containers: pod.Spec.Containers}} {
		for i := range group.containers {
			container := &group.containers[i]
			if err := checkEnv(serviceAccount, listed, group.subject, container.Name, container.Env, container.EnvFrom); err != nil {
				return err
			}
		}
	}
	listedForPull := map[string]bool{}
	for _, secret := range serviceAccount.ImagePullSecrets {
		listedForPull[secret.Name] = true
	}
	for i, secret := range pod.Spec.ImagePullSecrets {
		if !listedForPull[secret.Name] {
			return fmt.Errorf(
				"imagePullSecrets[%d].name=\"%s\" is not allowed because service account %s does not reference that imagePullSecret",
				i, secret.Name, serviceAccount.Name)
		}
	}
	return nil
}

// checkEphemeralContainers returns an error for a pod with an ephemeral container that uses secrets
// that the pod's account does not list.
func checkEphemeralContainers(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	listed := map[string]bool{}
	for _, secret := range account.Secrets {
		listed[secret.Name] = true
	}
	for i := range pod.Spec.EphemeralContainers {
		container := &pod.Spec.EphemeralContainers[i]
		if err := checkEnv(account, listed, "ephemeral container", container.Name, container.Env, container.EnvFrom); err != nil {
			return err
		}
	}
	return nil
}

// checkEnv returns an error for an environment variable from a Secret that the service account does
// not list. listed holds the names of the account's secrets. subject and container describe the
// container in the error.
func checkEnv(
	serviceAccount *corev1.ServiceAccount,
	listed map[string]bool,
	subject, container string,
	env []corev1.EnvVar,
	from []corev1.EnvFromSource,
) error {
	for _, variable := range env {
		if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil && !listed[variable.ValueFrom.SecretKeyRef.Name] {
			return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
				subject, container, variable.Name, variable.ValueFrom.SecretKeyRef.Name, serviceAccount.Name)
		}
	}
	for _, source := range from {
		if source.SecretRef != nil && !listed[source.SecretRef.Name] {
			return fmt.Errorf("%s %s with envFrom referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret",
				subject, container, source.SecretRef.Name, serviceAccount.Name)
		}
	}
	return nil
}
