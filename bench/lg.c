// load generator. lg PORT MODE CONNS SECONDS BODYFILE [RATE] ; MODE: stream | rate | json (closed loop, no stream) ; env LG_PATH, LG_HDR (extra header lines with \r\n)
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>
#include <ctype.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
static int64_t now(){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1000000000LL+t.tv_nsec;}
typedef struct { int64_t*v; size_t n,cap; } vec; static void vadd(vec*a,int64_t x){ if(a->n==a->cap){a->cap=a->cap?a->cap*2:4096;a->v=realloc(a->v,a->cap*8);} a->v[a->n++]=x; }
static int cmp(const void*a,const void*b){int64_t x=*(int64_t*)a,y=*(int64_t*)b;return x<y?-1:x>y;}
static double pct(vec*a,double p){ if(!a->n)return -1; size_t i=(size_t)(p*(a->n-1)); return a->v[i]/1000.0; }
typedef struct { int fd; int state; /*0 idle 1 hdr 2 body*/ int chunked; int64_t clen; int64_t t0; int first; int done_seen, fin_seen; int nchunks; char hb[16384]; size_t hl; char line[65536]; size_t ll; int cst; int64_t crem; char cl[32]; int cll; size_t body; int status; int close; int64_t start_at; } conn;
static char req[65536]; static size_t reqlen; static int ep; static struct sockaddr_in addr;
static vec lat,chk,ttft; static long long nreq,nerr,nchunk,ntrunc,nconn,bytes,nstat[6]; static int64_t tend,tbeg,twarm; static int mode,running=1; static int live;
static void openc(conn*c){ c->fd=socket(AF_INET,SOCK_STREAM|SOCK_NONBLOCK,0); int one=1; setsockopt(c->fd,IPPROTO_TCP,TCP_NODELAY,&one,sizeof one); connect(c->fd,(void*)&addr,sizeof addr); nconn++; struct epoll_event e={.events=EPOLLIN,.data.ptr=c}; epoll_ctl(ep,EPOLL_CTL_ADD,c->fd,&e); c->state=0; }
static void sendreq(conn*c,int64_t t0){ c->state=1;c->hl=c->ll=0;c->cst=0;c->cll=0;c->chunked=0;c->clen=-1;c->first=1;c->done_seen=c->fin_seen=0;c->nchunks=0;c->body=0;c->close=0; c->t0=t0; size_t o=0; while(o<reqlen){ ssize_t r=send(c->fd,req+o,reqlen-o,MSG_NOSIGNAL); if(r<0){ if(errno==EAGAIN||errno==ENOTCONN){usleep(50);continue;} break;} o+=r; } live++; }
static void line(conn*c,int64_t t){ c->line[c->ll]=0; if(c->ll>6&&!memcmp(c->line,"data: ",6)){ if(!strncmp(c->line+6,"[DONE]",6)){c->done_seen=1;} else { char*p=strstr(c->line,"\" t="); if(!p){p=strstr(c->line,"\"t=");if(p)p-=1;} if(p){ c->nchunks++; int64_t ts=strtoll(p+4,0,10); if(c->t0>=twarm){ nchunk++; vadd(&chk,t-ts); if(c->first){vadd(&ttft,t-c->t0);} } c->first=0; } if(strstr(c->line,"\"type\":\"message_stop\""))c->done_seen=1; /* the messages dialect's terminator */ if(strstr(c->line,"\"finish_reason\":\"stop\"")||strstr(c->line,"\"finish_reason\": \"stop\""))c->fin_seen=1; } } c->ll=0; }
static void bodyb(conn*c,const char*p,size_t n,int64_t t){ c->body+=n; if(c->t0>=twarm)bytes+=n; if(mode==0){ while(n){ const char*e=memchr(p,'\n',n); size_t k=e?(size_t)(e-p):n; if(c->ll+k<sizeof c->line-1){memcpy(c->line+c->ll,p,k);c->ll+=k;} if(e){line(c,t);p=e+1;n-=k+1;} else n=0; } } }
static void fin(conn*c,int ok,int64_t t){ live--; if(c->t0>=twarm){ nreq++; nstat[(c->status/100)%6]++; if(!ok||c->status!=200)nerr++; else { vadd(&lat,t-c->t0); if(mode==0 && !(c->done_seen&&c->nchunks==100)) ntrunc++; } } c->state=0; }
static void feed(conn*c,const char*p,size_t n,int64_t t){ // returns via state
  while(n){ if(c->state==1){ size_t k=n; if(c->hl+k>sizeof c->hb-1)k=sizeof c->hb-1-c->hl; size_t old=c->hl; memcpy(c->hb+c->hl,p,k); c->hl+=k; c->hb[c->hl]=0; char*e=memmem(c->hb,c->hl,"\r\n\r\n",4); if(!e){p+=k;n-=k;continue;} size_t used=(e+4-c->hb)-old; p+=used;n-=used; *e=0; c->status=atoi(c->hb+9); if(c->status==100){c->hl=0;continue;} char*x=strcasestr(c->hb,"\ncontent-length:"); if(x)c->clen=atoll(x+16); if(strcasestr(c->hb,"\ntransfer-encoding: chunked"))c->chunked=1; if(strcasestr(c->hb,"\nconnection: close"))c->close=1; c->state=2; if(!c->chunked&&c->clen==0){fin(c,1,t);return;} continue; }
    if(c->state==2){ if(c->chunked){ if(c->cst==0){ char ch=*p++;n--; if(ch=='\n'){ c->cl[c->cll]=0; c->crem=strtoll(c->cl,0,16); c->cll=0; c->cst=c->crem?1:3; } else if(c->cll<30)c->cl[c->cll++]=ch; }
        else if(c->cst==1){ size_t k=n<(size_t)c->crem?n:(size_t)c->crem; bodyb(c,p,k,t); p+=k;n-=k;c->crem-=k; if(!c->crem)c->cst=2; }
        else if(c->cst==2){ if(*p=='\n')c->cst=0; p++;n--; }
        else { char ch=*p++;n--; if(ch=='\n'){ if(c->cll==0){fin(c,1,t);return;} c->cll=0; } else if(ch!='\r')c->cll++; } }
      else if(c->clen>=0){ size_t k=n<(size_t)c->clen?n:(size_t)c->clen; bodyb(c,p,k,t); p+=k;n-=k;c->clen-=k; if(!c->clen){fin(c,1,t);return;} }
      else { bodyb(c,p,n,t); n=0; } }
    if(c->state==0) return; } }
int main(int argc,char**argv){ signal(SIGPIPE,SIG_IGN); int port=atoi(argv[1]); mode=!strcmp(argv[2],"rate")?1:!strcmp(argv[2],"json")?2:0; int closed=mode!=1; int N=atoi(argv[3]); double secs=atof(argv[4]); double rate=argc>6?atof(argv[6]):0; double warm=getenv("LG_WARM")?atof(getenv("LG_WARM")):0.5;
  FILE*f=fopen(argv[5],"r"); char body[32768]; size_t bl=fread(body,1,sizeof body,f); fclose(f); while(bl&&(body[bl-1]=='\n'))bl--; const char*path=getenv("LG_PATH")?:"/v1/chat/completions"; const char*h=getenv("LG_HDR")?:"";
  reqlen=sprintf(req,"POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\naccept: */*\r\nauthorization: Bearer %s\r\n%scontent-length: %zu\r\n\r\n",path,port,getenv("LG_KEY")?:"sk-1234",h,bl); memcpy(req+reqlen,body,bl); reqlen+=bl;
  addr.sin_family=AF_INET;addr.sin_port=htons(port);addr.sin_addr.s_addr=htonl(INADDR_LOOPBACK); ep=epoll_create1(0); conn*cs=calloc(N,sizeof(conn)); tbeg=now(); twarm=tbeg+(int64_t)(warm*1e9); tend=twarm+(int64_t)(secs*1e9); 
  for(int i=0;i<N;i++){ openc(&cs[i]); cs[i].start_at=tbeg+50000000+(closed?(int64_t)(10000000.0*i/N):0); } usleep(50000);
  int64_t period=rate>0?(int64_t)(1e9/rate):0, nextr=tbeg+60000000; int rr=0; struct epoll_event ev[512]; static char rb[262144]; long long drop=0; int started=0;
  for(;;){ int64_t t=now(); if(t>=tend)running=0; if(!running&&(live<=0||t>tend+5000000000LL))break;
    if(closed&&running&&started<N){ for(int i=0;i<N;i++) if(cs[i].state==0&&cs[i].start_at&&t>=cs[i].start_at){ cs[i].start_at=0; started++; sendreq(&cs[i],t);} }
    if(mode==1&&running) while(nextr<=t){ int k; for(k=0;k<N;k++){ conn*c=&cs[(rr+k)%N]; if(c->state==0&&c->fd>=0){ rr=(rr+k+1)%N; sendreq(c,nextr); break;} } if(k==N)drop++; nextr+=period; }
    int to=1; if(mode==1&&running){ int64_t d=nextr-now(); struct timespec ts; if(d<0)d=0; if(d>1000000)d=d; ts.tv_sec=0; ts.tv_nsec=d; int n; 
#ifdef __NR_epoll_pwait2
#endif
      n=epoll_pwait2(ep,ev,512,&ts,0); t=now(); for(int i=0;i<n;i++){ conn*c=ev[i].data.ptr; ssize_t r=recv(c->fd,rb,sizeof rb,0); int64_t tt=now(); if(r<=0){ if(r<0&&errno==EAGAIN)continue; if(c->state){ fin(c,c->state==2&&!c->chunked&&c->clen<0,tt);} close(c->fd); openc(c); continue;} feed(c,rb,r,tt); if(c->state==0&&c->close){close(c->fd);openc(c);} } continue; }
    if(started==N) to=20; int n=epoll_wait(ep,ev,512,to);
    for(int i=0;i<n;i++){ conn*c=ev[i].data.ptr; ssize_t r=recv(c->fd,rb,sizeof rb,0); int64_t tt=now(); if(r<=0){ if(r<0&&errno==EAGAIN)continue; if(c->state){ fin(c,c->state==2&&!c->chunked&&c->clen<0,tt);} close(c->fd); if(running){openc(c); if(closed){ usleep(200); c->start_at=0; sendreq(c,now());} } else c->fd=-1; continue;} int st=c->state; feed(c,rb,r,tt); if(st&&c->state==0){ if(c->close){close(c->fd);openc(c);usleep(200);} if(running&&closed) sendreq(c,now()); } } }
  double el=(now()-twarm)/1e9; qsort(lat.v,lat.n,8,cmp); qsort(chk.v,chk.n,8,cmp); qsort(ttft.v,ttft.n,8,cmp);
  printf("{\"elapsed\":%.3f,\"req\":%lld,\"err\":%lld,\"trunc\":%lld,\"chunks\":%lld,\"conns\":%lld,\"unfinished\":%d,\"drop\":%lld,\"mb\":%.2f,\"rps\":%.1f,\"cps\":%.1f,\"lat_us\":[%.1f,%.1f,%.1f],\"chunk_us\":[%.1f,%.1f,%.1f,%.1f],\"ttft_us\":[%.1f,%.1f],\"st\":[%lld,%lld,%lld,%lld]}\n",el,nreq,nerr,ntrunc,nchunk,nconn,live,drop,bytes/1e6,nreq/el,nchunk/el,pct(&lat,.5),pct(&lat,.99),pct(&lat,1),pct(&chk,.5),pct(&chk,.9),pct(&chk,.99),pct(&chk,1),pct(&ttft,.5),pct(&ttft,.99),nstat[2],nstat[3],nstat[4],nstat[5]); return 0; }
