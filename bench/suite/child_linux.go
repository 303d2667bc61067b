package suite

import "syscall"

// dieWithUs ends a process with this one, however that ends.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
