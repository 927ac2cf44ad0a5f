/* PID 1 of the initial file system: loads the modules that the disks need, mounts the root and goes on with its init.
 *
 * The root stays read-only until a guest starts its payload: a guest that was saved before holds nothing of its disk that
 * another one does not. Modules are listed in /modules, in the order in which they need each other. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failed(const char *what) {
  fprintf(stderr, "first: %s: %s\n", what, strerror(errno));
  return 1;
}

int main(void) {
  char line[256], path[300];
  FILE *list = fopen("/modules", "r");

  while (list && fgets(line, sizeof line, list)) {
    line[strcspn(line, "\n")] = 0;
    snprintf(path, sizeof path, "/lib/%s", line);
    int module = open(path, O_RDONLY | O_CLOEXEC);
    if (module < 0 || (syscall(SYS_finit_module, module, "", 0) && errno != EEXIST))
      return failed(path);
    close(module);
  }
  if (mount("devtmpfs", "/dev", "devtmpfs", 0, 0))
    return failed("devtmpfs");
  /* Disks are found in the order of their slots; the root is the first. */
  for (int tries = 0; mount("/dev/vda1", "/root", "ext4", MS_RDONLY, 0); tries++) {
    if (tries == 600)
      return failed("/dev/vda1");
    usleep(50000);
  }
  if (mount("/dev", "/root/dev", 0, MS_MOVE, 0) || chdir("/root") || mount(".", "/", 0, MS_MOVE, 0) || chroot("."))
    return failed("the root");
  execl("/usr/sbin/vm-init", "vm-init", (char *)0);
  return failed("/usr/sbin/vm-init");
}
